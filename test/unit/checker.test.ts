// Goal: the checker reads the chain where it must, trusts nothing that the payer claims, and approves only transfers that the token would execute.
import t from "tap";
import { hashTypedData, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { PaymentReads } from "../../server/plugins/facilitator/chain-reads.ts";
import { PaymentChecker } from "../../server/plugins/facilitator/verify.ts";
import { transferOf } from "../helpers/eip3009.ts";
import { ARC, bodyOf } from "./payment-samples.ts";

const key = privateKeyToAccount(generatePrivateKey());
const otherKey = privateKeyToAccount(generatePrivateKey());
const WALLET: Address = "0x00000000000000000000000000000000000000AA";

/** A chain on which every read succeeds, unless `over` replaces it. `reads` lists the reads in order. */
function checkerOn(over: Partial<PaymentReads> = {}) {
  const reads: string[] = [];
  const answers: PaymentReads = {
    simulate: async () => true,
    simulateAlone: async () => ({ goesThrough: true, revert: undefined }),
    diagnose: async () => ({ used: false, balanceAtomic: 5_000n }),
    simulateAfter: async () => ({ fails: true }),
    hasCode: async () => false,
    acceptsSignature: async () => false,
    ...over,
  };
  const noted = Object.fromEntries(
    Object.entries(answers).map(([name, answer]) => [
      name,
      (...args: unknown[]) => {
        reads.push(name);
        return (answer as (...args: unknown[]) => unknown)(...args);
      },
    ]),
  ) as unknown as PaymentReads;
  const checker = new PaymentChecker({
    relayers: [],
    networks: [ARC],
    reads: new Map([[ARC.chainId, noted]]),
    factories: [],
    minPaymentAtomic: 1n,
    nowSeconds: () => 1_000n,
  });
  return { checker, reads };
}

async function payment(from: Address = key.address, signer = key, asset = ARC.usdc.address) {
  const body = bodyOf({ from });
  const { authorization } = body.paymentPayload.payload;
  const hash = hashTypedData({
    domain: { name: "USDC", version: "2", chainId: ARC.chainId, verifyingContract: asset },
    ...transferOf(authorization),
  });
  body.paymentPayload.payload.signature = await signer.sign({ hash });
  body.paymentRequirements.asset = asset;
  body.paymentPayload.accepted.asset = asset;
  return body;
}

t.test("a plain account costs one chain read", async (t) => {
  const { checker, reads } = checkerOn();
  t.match(await checker.check(await payment()), { isValid: true, payment: { payer: key.address } });
  t.same(reads, ["simulate"]);
});

t.test("a signature of another key costs no more chain reads than necessary", async (t) => {
  const { checker, reads } = checkerOn();
  t.match(await checker.check(await payment(key.address, otherKey)), {
    reason: "invalid_exact_evm_signature",
  });
  t.same(reads, ["hasCode"], "an account without code can sign only with its key");
});

t.test("wrong terms are refused before any simulation", async (t) => {
  const { checker, reads } = checkerOn();
  const body = await payment();
  body.paymentRequirements.payTo = otherKey.address;
  t.match(await checker.check(body), { reason: "invalid_exact_evm_recipient_mismatch" });
  t.same(reads, []);
});

t.test("only the network's own token is accepted", async (t) => {
  for (const [isContract, reason] of [
    [true, "invalid_exact_evm_eip3009_not_supported"],
    [false, "asset_not_deployed_contract"],
  ] as const) {
    const { checker, reads } = checkerOn({ hasCode: async () => isContract });
    t.match(await checker.check(await payment(key.address, key, WALLET)), { reason });
    t.notOk(reads.includes("simulate"), "another token's code is not run");
  }
});

t.test("a failing transfer is simulated alone before it is explained", async (t) => {
  const poor = checkerOn({
    simulate: async () => false,
    simulateAlone: async () => ({ goesThrough: false, revert: undefined }),
    diagnose: async () => ({ used: false, balanceAtomic: 1n }),
  });
  t.match(await poor.checker.check(await payment()), {
    reason: "invalid_exact_evm_insufficient_balance",
  });
  const inBatch = checkerOn({ simulate: async () => false });
  t.match(
    await inBatch.checker.check(await payment()),
    { isValid: true },
    "another payment of the batch failed",
  );
});

t.test("the token's revert reason is returned", async (t) => {
  for (const [revert, reason, message] of [
    ["Pausable: paused", "invalid_exact_evm_transaction_simulation_failed", /paused/],
    ["Blacklistable: account is blacklisted", /simulation_failed/, /blocks the payer/],
    ["FiatTokenV2: authorization is not yet valid", /_valid_after$/, /not valid yet/],
    ["FiatTokenV2: authorization is expired", /_valid_before$/, /validBefore/],
  ] as const) {
    const { checker } = checkerOn({
      simulate: async () => false,
      simulateAlone: async () => ({ goesThrough: false, revert }),
    });
    t.match(await checker.check(await payment()), { isValid: false, reason, message }, revert);
  }
});

t.test("a contract account verifies its own signatures", async (t) => {
  const body = await payment(WALLET);
  const shown: Hex[] = [];
  const yes = checkerOn({
    hasCode: async () => true,
    acceptsSignature: async (_wallet, _digest, signature) => shown.push(signature) > 0,
  });
  const approved = await yes.checker.check(body);
  t.match(approved, { isValid: true, payment: { payer: WALLET } });
  t.same(shown, [body.paymentPayload.payload.signature], "unchanged");
  t.same(yes.reads, ["hasCode", "acceptsSignature", "simulateAlone"], "never in a batch");
  const no = checkerOn({ hasCode: async () => true });
  t.match(await no.checker.check(body), { reason: "invalid_exact_evm_signature" });
  t.same(no.reads, ["hasCode", "acceptsSignature"]);
});

t.test("an account that has code is checked like a contract", async (t) => {
  const { checker, reads } = checkerOn({
    simulate: async () => false,
    simulateAlone: async () => ({ goesThrough: false, revert: undefined }),
    hasCode: async () => true,
  });
  t.match(await checker.check(await payment()), { reason: "invalid_exact_evm_signature" });
  t.equal(reads.at(-1), "acceptsSignature");
});

t.test("no result when the chain does not answer", async (t) => {
  const down = new Error("down");
  const { checker } = checkerOn({ simulate: async () => Promise.reject(down) });
  await t.rejects(checker.check(await payment()), down);
});
