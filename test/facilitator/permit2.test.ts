// Goal: a Permit2 payment settles once and returns success once; its EIP-2612 permit is sent at the relayer's gas.
import t from "tap";
import type { Address } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { approvePermit2, ERC20_ABI, PERMIT2 } from "../helpers/permit2.ts";
import { change } from "./bent-payments.ts";
import { permit2Payment, sponsoring } from "./permit2-payments.ts";
import { post, signedPayment } from "./payments.ts";

const newAccount = () => privateKeyToAccount(generatePrivateKey());

t.test("exact over Permit2", async (t) => {
  const one = await testApp(t, { listen: true });
  const two = await testApp(t, { database: one.database, chain: one.chain });
  const { chain } = one;
  const payer = newAccount();
  await chain.mint(payer.address, 1_000_000n);
  await approvePermit2(chain, [payer]);
  const read = (functionName: "balanceOf" | "allowance", args: [Address, Address?]) =>
    chain.publicClient.readContract({
      address: chain.usdc,
      abi: ERC20_ABI,
      functionName,
      args: args as never,
    });
  const everywhere = <T>(use: (app: TestApp["app"]) => Promise<T>): Promise<T[]> =>
    Promise.all(Array.from({ length: 20 }, (_, index) => use(index % 2 === 0 ? one.app : two.app)));

  await t.test("20 in parallel from two processes: one transfer, one success", async (t) => {
    const payTo = newAccount().address;
    const body = await permit2Payment({ chain, payer, payTo });
    t.match(await post(one.app, "verify", body), { isValid: true, payer: payer.address });
    const answers = await everywhere((app) => post(app, "settle", body));
    const successes = answers.filter(({ success }) => success === true);
    t.equal(successes.length, 1);
    for (const answer of answers.filter(({ success }) => success !== true))
      t.match(answer, {
        errorReason: "duplicate_settlement",
        transaction: successes[0]?.["txHash"],
      });
    t.equal(await read("balanceOf", [payTo]), 1_000n);
    t.match(await post(two.app, "settle", body), { errorReason: "duplicate_settlement" });
    const more = change(body, "paymentPayload.payload.permit2Authorization.nonce", "5");
    t.match(await post(two.app, "settle", more), { errorReason: "invalid_permit2_signature" });
  });

  await t.test("one payer pays the same payee twenty times, each once", async (t) => {
    const payTo = newAccount().address;
    const bodies = await Promise.all(
      Array.from({ length: 20 }, () => permit2Payment({ chain, payer, payTo })),
    );
    const answers = await Promise.all(bodies.map((body) => post(one.app, "settle", body)));
    t.ok(
      answers.every(({ success }) => success === true),
      JSON.stringify(answers.find(({ success }) => success !== true)),
    );
    t.equal(await read("balanceOf", [payTo]), 20_000n);
  });

  await t.test("in one burst with EIP-3009 payments", async (t) => {
    const payTo = newAccount().address;
    const bodies = await Promise.all(
      Array.from({ length: 10 }, (_, index) =>
        index % 2 === 0
          ? permit2Payment({ chain, payer, payTo, amount: BigInt(1_000 + index) })
          : signedPayment({ chain, payer, payTo, amount: String(1_000 + index) }),
      ),
    );
    const answers = await Promise.all(bodies.map((body) => post(one.app, "settle", body)));
    t.ok(answers.every(({ success }) => success === true));
    t.equal(await read("balanceOf", [payTo]), 10_045n);
  });

  await t.test("the token's permit is sent with the payment, at the relayer's gas", async (t) => {
    const supported = (await one.app.inject("/api/x402/supported")).json<{
      extensions: string[];
    }>();
    t.ok(supported.extensions.includes("eip2612GasSponsoring"));
    const fresh = newAccount();
    await chain.mint(fresh.address, 5_000n);
    const payTo = newAccount().address;
    const bare = await permit2Payment({ chain, payer: fresh, payTo });
    t.match(await post(one.app, "settle", bare), { errorReason: "permit2_allowance_required" });
    const extensions = await sponsoring(chain, fresh);
    const body = await permit2Payment({ chain, payer: fresh, payTo, extensions });
    t.match(await post(one.app, "settle", body), { success: true });
    t.equal(await read("balanceOf", [payTo]), 1_000n);
    t.equal(await read("allowance", [fresh.address, PERMIT2]), 0n, "no more than was paid");
    t.equal(await chain.publicClient.getBalance({ address: fresh.address }), 0n);
    const { rows } = await one.database.pool.query<{ gas: string }>(
      `SELECT t.gas_cost AS gas FROM settlement_transactions i JOIN relayer_transactions t
         ON t.chain_id = i.chain_id AND t.lane_address = i.lane_address AND t.nonce = i.lane_nonce
        WHERE i.from_address = $1`,
      [fresh.address.toLowerCase()],
    );
    t.ok(BigInt(rows[0]?.gas ?? 0) > 0n, "its gas is accounted for");
    const stolen = await permit2Payment({ chain, payer, payTo, extensions });
    t.match(await post(one.app, "settle", stolen), { errorReason: "eip2612_from_mismatch" });
  });
});
