// Goal: a verify costs one chain call, one signature recovery and only synchronous hooks; and caching never accepts
// a payment that the chain refuses.
import { createRequire } from "node:module";
import t from "tap";
import type { FastifyInstance } from "fastify";
import { bytesToHex, getAddress, keccak256 } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { checksummedAddress, keccak, keccakOfHex, whenReady } from "../../server/core/keccak.ts";
import { parseAddress } from "../../server/core/foreign-text.ts";
import { testApp } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { rpcProxy } from "../helpers/rpc-proxy.ts";
import { post, signedPayment } from "./payments.ts";

/** Counts the signature recoveries of the server's library. */
const curve = createRequire(import.meta.url)("secp256k1/bindings.js") as {
  ecdsaRecover: (...given: unknown[]) => Uint8Array;
};
let recovered = 0;
const { ecdsaRecover } = curve;
curve.ecdsaRecover = (...given) => {
  recovered += 1;
  return ecdsaRecover(...given);
};

t.test("hashes and checksummed addresses equal those of viem", async (t) => {
  await whenReady;
  for (let round = 0; round < 200; round += 1) {
    const bytes = Buffer.from(
      generatePrivateKey()
        .slice(2)
        .repeat(1 + (round % 12)),
      "hex",
    );
    const text = bytesToHex(bytes);
    t.equal(bytesToHex(keccak(bytes)), keccak256(text));
    t.equal(keccakOfHex(text), keccak256(text));
    const lower = `0x${bytes.subarray(0, 20).toString("hex")}` as const;
    const spelled = getAddress(lower);
    t.equal(checksummedAddress(lower), spelled);
    t.equal(checksummedAddress(lower), spelled, "from the cache");
    t.same(parseAddress(spelled), { ok: true, address: lower });
    t.same(parseAddress(`0x${lower.slice(2).toUpperCase()}`), { ok: true, address: lower });
    const at = spelled.search(/[A-F]/);
    if (at < 0 || !/[a-f]/.test(spelled.slice(2))) continue;
    const typo = spelled.slice(0, at) + spelled.charAt(at).toLowerCase() + spelled.slice(at + 1);
    const isMixed = typo !== lower;
    t.equal(parseAddress(typo).ok, !isMixed, "a wrong checksum");
  }
});

t.test("one verify, many in parallel, and a settle after it", async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: 0.25 });
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const asyncHooks: string[] = [];
  const { app } = await testApp(t, {
    chain: { ...chain, rpcUrl: proxy.url },
    observe: (built) => noteAsyncHooks(built, asyncHooks),
  });
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const payers = Array.from({ length: 64 }, () => privateKeyToAccount(generatePrivateKey()));
  await chain.mint(
    payers.map(({ address }) => address),
    10_000n,
  );
  const [payer] = payers;
  if (!payer) throw new Error("no payers");
  /** RPC calls that mention one of the payers. */
  const callCount = (of = payers): number =>
    proxy.calls.filter(({ method, params }) => {
      const text = JSON.stringify([method, params]).toLowerCase();
      return of.some(({ address }) => text.includes(address.slice(2).toLowerCase()));
    }).length;
  const counted = async <T>(work: () => Promise<T>) => {
    const before = { calls: callCount(), recovered };
    const result = await work();
    return { result, calls: callCount() - before.calls, recovered: recovered - before.recovered };
  };

  const body = await signedPayment({ chain, payer, payTo });
  const first = await counted(() => post(app, "verify", body));
  t.match(first.result, { isValid: true, payer: payer.address });
  t.equal(first.calls, 1, "one call");
  t.equal(first.recovered, 1, "one signature recovery");

  const again = await counted(() => post(app, "verify", body));
  t.match(again.result, { isValid: true });
  t.equal(again.calls, 1, "the chain is called each time");
  t.equal(again.recovered, 0, "the signer of these bytes is cached");

  // A busy machine may split them into more groups, but not every time.
  const questions: number[] = [];
  for (let time = 0; time < 5 && !questions.some((count) => count <= 4); time += 1) {
    const others = await Promise.all(
      payers.map((each) =>
        signedPayment({ chain, payer: each, payTo, amount: String(2_000 + time) }),
      ),
    );
    const many = await counted(() => Promise.all(others.map((one) => post(app, "verify", one))));
    t.equal(many.result.filter(({ isValid }) => isValid === true).length, 64);
    t.equal(many.recovered, 64);
    questions.push(many.calls);
  }
  t.ok(Math.min(...questions) <= 4, `64 in parallel take ${questions.join(", ")} calls`);

  const bent = structuredClone(body) as unknown as { paymentPayload: { payload: Bent } };
  bent.paymentPayload.payload.authorization.value = "1001";
  const refused = await counted(() => post(app, "verify", bent));
  t.match(refused.result, { isValid: false, invalidReason: "invalid_exact_evm_signature" });
  t.equal(refused.recovered, 1, "the cache applies only to the same bytes");

  const settled = await counted(() => post(app, "settle", body));
  t.match(settled.result, { success: true });
  t.equal(settled.recovered, 0, "verified before");
  const late = await post(app, "verify", body);
  t.match(late, { isValid: false, invalidReason: "invalid_exact_evm_nonce_already_used" });

  const dear = await signedPayment({ chain, payer, payTo, amount: "9000" });
  t.match(await post(app, "verify", dear), { isValid: true });
  const most = await signedPayment({ chain, payer, payTo, amount: "5000" });
  t.match(await post(app, "settle", most), { success: true });
  t.match(
    await post(app, "verify", dear),
    { isValid: false, invalidReason: "invalid_exact_evm_insufficient_balance" },
    "balances are not cached",
  );

  t.same(asyncHooks, [], "no hook of every request is async");
});

interface Bent {
  authorization: { value: string };
}

const ON_THE_WAY = /^(onRequest|pre(Parsing|Validation|Handler|Serialization)|onSend|onResponse)$/;

/** Records async hooks of the whole app, as every request would pay for their promises. */
function noteAsyncHooks(app: FastifyInstance, found: string[]): void {
  const original = Reflect.get(app, "addHook") as (...given: unknown[]) => unknown;
  const noting = function noting(this: unknown, ...given: [string, (...args: unknown[]) => void]) {
    const [name, hook] = given;
    const isAsync = hook.constructor.name === "AsyncFunction";
    if (this === app && isAsync && ON_THE_WAY.test(name))
      found.push(`${name}: ${String(hook).slice(0, 80)}`);
    return original.apply(this, given);
  };
  Reflect.set(app, "addHook", noting);
}
