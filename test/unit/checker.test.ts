// Goal: the one checker asks the chain what it must, believes nothing the payer says, and approves only what the token would move.
import t from "tap";
import { hashTypedData, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { PaymentChecker, type PaymentReads } from "../../server/plugins/facilitator/check.ts";
import { ARC, bodyOf, TRANSFER_TYPES } from "./payment-samples.ts";

const key = privateKeyToAccount(generatePrivateKey());
const stranger = privateKeyToAccount(generatePrivateKey());
const WALLET: Address = "0x00000000000000000000000000000000000000AA";

/** A chain on which all is well, unless told otherwise; `asked` says what it was asked, in order. */
function checkerOn(over: Partial<PaymentReads> = {}) {
  const asked: string[] = [];
  const answers: PaymentReads = {
    rehearse: async () => true,
    rehearseAlone: async () => ({ goesThrough: true, revert: undefined }),
    diagnose: async () => ({ used: false, balanceAtomic: 5_000n }),
    rehearseAfter: async () => ({ fails: true }),
    hasCode: async () => false,
    acceptsSignature: async () => false,
    ...over,
  };
  const noted = Object.fromEntries(
    Object.entries(answers).map(([name, answer]) => [
      name,
      (...args: unknown[]) => {
        asked.push(name);
        return (answer as (...args: unknown[]) => unknown)(...args);
      },
    ]),
  ) as unknown as PaymentReads;
  const checker = new PaymentChecker({
    relayers: [],
    networks: [ARC],
    reads: noted,
    mayDeploy: () => false,
    minPaymentAtomic: 1n,
    nowSeconds: () => 1_000n,
  });
  return { checker, asked };
}

async function payment(from: Address = key.address, signer = key, asset = ARC.usdc.address) {
  const body = bodyOf({ from });
  const { authorization } = body.paymentPayload.payload;
  const hash = hashTypedData({
    domain: { name: "USDC", version: "2", chainId: ARC.chainId, verifyingContract: asset },
    types: TRANSFER_TYPES,
    primaryType: "TransferWithAuthorization",
    message: {
      ...authorization,
      value: BigInt(authorization.value),
      validAfter: BigInt(authorization.validAfter),
      validBefore: BigInt(authorization.validBefore),
    },
  });
  body.paymentPayload.payload.signature = await signer.sign({ hash });
  body.paymentRequirements.asset = asset;
  body.paymentPayload.accepted.asset = asset;
  return body;
}

t.test("an ordinary account costs one question", async (t) => {
  const { checker, asked } = checkerOn();
  t.match(await checker.check(await payment()), { isValid: true, payment: { payer: key.address } });
  t.same(asked, ["rehearse"]);
});

t.test("somebody else's signature is not asked about further than it must", async (t) => {
  const { checker, asked } = checkerOn();
  t.match(await checker.check(await payment(key.address, stranger)), {
    reason: "invalid_exact_evm_signature",
  });
  t.same(asked, ["hasCode"], "an account without code can sign only with its key");
});

t.test("terms are refused before any rehearsal", async (t) => {
  const { checker, asked } = checkerOn();
  const body = await payment();
  body.paymentRequirements.payTo = stranger.address;
  t.match(await checker.check(body), { reason: "invalid_exact_evm_recipient_mismatch" });
  t.same(asked, []);
});

t.test("only the network's own token", async (t) => {
  for (const [isContract, reason] of [
    [true, "invalid_exact_evm_eip3009_not_supported"],
    [false, "asset_not_deployed_contract"],
  ] as const) {
    const { checker, asked } = checkerOn({ hasCode: async () => isContract });
    t.match(await checker.check(await payment(key.address, key, WALLET)), { reason });
    t.notOk(asked.includes("rehearse"), "another token's code is not run");
  }
});

t.test("a transfer that fails is explained, and looked at alone first", async (t) => {
  const poor = checkerOn({
    rehearse: async () => false,
    rehearseAlone: async () => ({ goesThrough: false, revert: undefined }),
    diagnose: async () => ({ used: false, balanceAtomic: 1n }),
  });
  t.match(await poor.checker.check(await payment()), {
    reason: "invalid_exact_evm_insufficient_balance",
  });
  const crowded = checkerOn({ rehearse: async () => false });
  t.match(await crowded.checker.check(await payment()), { isValid: true }, "a neighbour's fault");
});

t.test("what the token says against it is told", async (t) => {
  for (const [revert, reason, message] of [
    ["Pausable: paused", "invalid_exact_evm_transaction_simulation_failed", /paused/],
    ["Blacklistable: account is blacklisted", /simulation_failed/, /blocks the payer/],
    ["FiatTokenV2: authorization is not yet valid", /_valid_after$/, /not valid yet/],
    ["FiatTokenV2: authorization is expired", /_valid_before$/, /validBefore/],
  ] as const) {
    const { checker } = checkerOn({
      rehearse: async () => false,
      rehearseAlone: async () => ({ goesThrough: false, revert }),
    });
    t.match(await checker.check(await payment()), { isValid: false, reason, message }, revert);
  }
});

t.test("an account that is a contract answers for its signatures itself", async (t) => {
  const body = await payment(WALLET);
  const shown: Hex[] = [];
  const yes = checkerOn({
    hasCode: async () => true,
    acceptsSignature: async (_chain, _wallet, _digest, signature) => shown.push(signature) > 0,
  });
  const approved = await yes.checker.check(body);
  t.match(approved, { isValid: true, payment: { payer: WALLET } });
  t.same(shown, [body.paymentPayload.payload.signature], "as it was given");
  t.same(yes.asked, ["hasCode", "acceptsSignature", "rehearseAlone"], "never with others");
  const no = checkerOn({ hasCode: async () => true });
  t.match(await no.checker.check(body), { reason: "invalid_exact_evm_signature" });
  t.same(no.asked, ["hasCode", "acceptsSignature"]);
});

t.test("a key whose account has become a contract is asked like one", async (t) => {
  const { checker, asked } = checkerOn({
    rehearse: async () => false,
    rehearseAlone: async () => ({ goesThrough: false, revert: undefined }),
    hasCode: async () => true,
  });
  t.match(await checker.check(await payment()), { reason: "invalid_exact_evm_signature" });
  t.equal(asked.at(-1), "acceptsSignature");
});

t.test("a chain that does not answer gives no result", async (t) => {
  const down = new Error("down");
  const { checker } = checkerOn({ rehearse: async () => Promise.reject(down) });
  await t.rejects(checker.check(await payment()), down);
});
