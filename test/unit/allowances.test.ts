// Goal: a wallet's allowance is signed and sent as the token defines it (EIP-2612), and counts as given only when the token's own event shows it.
import { randomBytes } from "node:crypto";
import t from "tap";
import {
  bytesToHex,
  encodeFunctionData,
  hashTypedData,
  pad,
  parseAbi,
  toEventSelector,
  toHex,
  type Address,
  type Hex,
} from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { RpcLog } from "../../server/core/abi.ts";
import {
  allowanceCall,
  allowanceOf,
  permitDigest,
  permitsCall,
  schemeOf,
} from "../../server/schemes/index.ts";
import { PERMIT2 } from "../../server/schemes/permit2/onchain.ts";
import { ARC } from "./payment-samples.ts";

const key = privateKeyToAccount(generatePrivateKey());
const OTHER = toHex(randomBytes(20));
const ABI = parseAbi([
  "function permit(address owner, address spender, uint256 value, uint256 deadline, uint8 v, bytes32 r, bytes32 s)",
  "function nonces(address owner) view returns (uint256)",
  "function allowance(address owner, address spender) view returns (uint256)",
]);
const WANTED = {
  network: ARC,
  owner: key.address,
  spender: PERMIT2,
  value: 5_000n,
  count: 3n,
  deadline: 1_999n,
};
const AUTHORIZATION = allowanceOf(WANTED);
const scheme = schemeOf(AUTHORIZATION);
const USDC = ARC.usdc.address.toLowerCase() as Address;
const message = {
  owner: key.address,
  spender: PERMIT2,
  value: 5_000n,
  nonce: 3n,
  deadline: 1_999n,
};
const TYPED = {
  domain: { name: "USDC", version: "2", chainId: ARC.chainId, verifyingContract: ARC.usdc.address },
  types: {
    Permit: [
      { name: "owner", type: "address" },
      { name: "spender", type: "address" },
      { name: "value", type: "uint256" },
      { name: "nonce", type: "uint256" },
      { name: "deadline", type: "uint256" },
    ],
  },
  primaryType: "Permit",
  message,
} as const;

t.test("it is signed and sent as the token defines it", async (t) => {
  t.equal(bytesToHex(permitDigest(WANTED)), hashTypedData(TYPED));
  t.same(AUTHORIZATION, {
    chainId: ARC.chainId,
    asset: USDC,
    from: key.address.toLowerCase(),
    to: PERMIT2.toLowerCase(),
    value: 5_000n,
    validAfter: 0n,
    validBefore: 2_000n,
    nonce: `eip2612:${hashTypedData(TYPED)}`,
    terms: { scheme: "allowance", count: "3" },
  });
  const signature = await key.signTypedData(TYPED);
  const plan = scheme.planTransfer({ ...AUTHORIZATION, signature });
  const [r, s, v] = [signature.slice(0, 66), `0x${signature.slice(66, 130)}`, signature.slice(130)];
  t.same(plan.calls(), [
    {
      target: USDC,
      data: encodeFunctionData({
        abi: ABI,
        functionName: "permit",
        args: [key.address, PERMIT2, 5_000n, 1_999n, Number.parseInt(v, 16), r as Hex, s as Hex],
      }),
    },
  ]);
  t.match(plan, { isPlainKey: true, deployment: undefined, keyGas: 100_000n });
});

t.test("the token counts the permits of a wallet", async (t) => {
  const nonces = encodeFunctionData({ abi: ABI, functionName: "nonces", args: [key.address] });
  const count = { target: USDC, data: nonces };
  t.same(scheme.stateCall(AUTHORIZATION), count);
  t.same(permitsCall(USDC, key.address), count);
  t.same(allowanceCall(USDC, key.address, PERMIT2), {
    target: USDC,
    data: encodeFunctionData({ abi: ABI, functionName: "allowance", args: [key.address, PERMIT2] }),
  });
  const word = (value: bigint) => ({ success: true, data: toHex(value, { size: 32 }) });
  t.equal(scheme.isEnded(AUTHORIZATION, word(3n)), false, "this one is the next");
  t.equal(scheme.isEnded(AUTHORIZATION, word(4n)), true);
  t.equal(scheme.isEnded(AUTHORIZATION, { success: false, data: "0x" }), undefined);
  for (const terms of [undefined, { scheme: "exact-permit2" as const }])
    t.throws(() => scheme.isEnded({ ...AUTHORIZATION, terms }, word(4n)), /not an allowance/);
});

t.test("only the token's event for this wallet, spender and amount shows it", async (t) => {
  const approval = (over: Partial<RpcLog> = {}): RpcLog => ({
    address: USDC,
    topics: [
      toEventSelector("Approval(address,address,uint256)"),
      pad(AUTHORIZATION.from),
      pad(AUTHORIZATION.to),
    ],
    data: toHex(5_000n, { size: 32 }),
    transactionHash: "0x",
    blockNumber: "0x1",
    blockHash: "0x",
    ...over,
  });
  const good = approval();
  const [event, owner, spender] = good.topics as [Hex, Hex, Hex];
  const upper = (text: string) => text.toUpperCase().replace("0X", "0x") as Hex;
  const cases: [string, RpcLog[], "paid" | "untouched"][] = [
    ["its event", [good], "paid"],
    ["among others", [approval({ address: OTHER }), good], "paid"],
    [
      "in upper case",
      [approval({ address: upper(USDC), topics: [event, upper(owner), upper(spender)] })],
      "paid",
    ],
    ["no event", [], "untouched"],
    ["another token's", [approval({ address: OTHER })], "untouched"],
    ["another event", [approval({ topics: [pad("0x01"), owner, spender] })], "untouched"],
    ["another wallet's", [approval({ topics: [event, pad(OTHER), spender] })], "untouched"],
    ["for another spender", [approval({ topics: [event, owner, pad(OTHER)] })], "untouched"],
    ["another amount", [approval({ data: toHex(4_999n, { size: 32 }) })], "untouched"],
    ["an event without its arguments", [approval({ topics: [event] })], "untouched"],
    ["and with one of them", [approval({ topics: [event, owner] })], "untouched"],
  ];
  for (const [what, logs, outcome] of cases)
    t.equal(scheme.outcomeIn({ logs }, AUTHORIZATION), outcome, what);
  t.same(scheme.endFilter(AUTHORIZATION), { address: USDC, topics: [[event], owner, spender] });
  t.equal(scheme.isNamedInLogs, false);
  t.equal(
    scheme.traceOf({ ...AUTHORIZATION, asset: upper(USDC) }),
    `${USDC} ${AUTHORIZATION.from} allowance`,
    "one at a time for each wallet",
  );
});

t.test("why the token refuses it", async (t) => {
  const reason = "unexpected_settle_error";
  t.same(scheme.explainRevert("EIP2612: permit is Expired"), {
    reason,
    message: "The token refuses the permit. (EIP2612: permit is Expired)",
    isOfState: true,
  });
  t.match(scheme.explainRevert("invalid signature"), { isOfState: false });
  t.same(scheme.explainRevert(undefined), {
    reason,
    message: "The token refuses the permit.",
    isOfState: false,
  });
  const { message } = scheme.explainRevert("x".repeat(5_000));
  t.equal(message, `The token refuses the permit. (${"x".repeat(200)})`);
});
