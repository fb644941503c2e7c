// A few hundred payments: good ones, false ones, and ones with garbage in each field.
import {
  getAddress,
  numberToHex,
  parseSignature,
  serializeCompactSignature,
  signatureToCompactSignature,
  type Address,
  type Hex,
} from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { TestChain } from "../helpers/chain.ts";
import { signedPayment, type Body, type Payment } from "./payments.ts";
import { deployWallet, futureWallet, MODES } from "./wallets.ts";

export interface Bent {
  name: string;
  body: Body;
}

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;

export const GARBAGE: unknown[] = [
  undefined,
  null,
  "",
  " ",
  "0x",
  "abc",
  7,
  -1,
  "-1",
  "+1",
  "1e3",
  "1.5",
  "01",
  " 1000",
  "0x3e8",
  true,
  {},
  [],
  "9".repeat(90),
  `0x${"00".repeat(20)}`,
  `0x${"zz".repeat(20)}`,
  `0x${"ab".repeat(32)}`,
];

const PATHS = [
  "paymentRequirements.scheme",
  "paymentRequirements.network",
  "paymentRequirements.asset",
  "paymentRequirements.amount",
  "paymentRequirements.payTo",
  "paymentRequirements.extra",
  "paymentRequirements.extra.name",
  "paymentRequirements.extra.version",
  "paymentPayload.accepted.scheme",
  "paymentPayload.accepted.network",
  "paymentPayload.payload.signature",
  "paymentPayload.payload.authorization.from",
  "paymentPayload.payload.authorization.to",
  "paymentPayload.payload.authorization.value",
  "paymentPayload.payload.authorization.validAfter",
  "paymentPayload.payload.authorization.validBefore",
  "paymentPayload.payload.authorization.nonce",
];

export async function bentPayments(chain: TestChain): Promise<Bent[]> {
  const payer = privateKeyToAccount(generatePrivateKey());
  const poor = privateKeyToAccount(generatePrivateKey());
  await chain.mint(payer.address, 1_000_000_000n);
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const make = (change: Partial<Payment> = {}) => signedPayment({ chain, payer, payTo, ...change });
  return [
    ...(await honest(make, chain, payTo)),
    ...(await falsePayments(make, chain, payTo, poor)),
    ...(await signatures(make)),
    ...(await used(make, chain)),
    ...(await wallets(make, chain)),
    ...(await garbage(make)),
  ];
}

type Make = (change?: Partial<Payment>) => Promise<Body>;
const named = async (name: string, body: Promise<Body> | Body): Promise<Bent> => ({
  name,
  body: await body,
});

async function honest(make: Make, chain: TestChain, payTo: Address): Promise<Bent[]> {
  const bent = await Promise.all(
    ["1", "999", "1000", "123456", "1000000000"].map((amount) =>
      named(`good ${amount}`, make({ amount })),
    ),
  );
  return [
    ...bent,
    await named(
      "good, recipient in lower case",
      change(await make(), "paymentRequirements.payTo", payTo.toLowerCase()),
    ),
    await named("good, unknown extra fields", withExtras(await make())),
    // On the chain's clock: its newest block may be seconds old.
    await named(
      "good, valid just now",
      make({ validAfter: String((await blockTime(chain)) - 1n) }),
    ),
    await named("zero amount", make({ amount: "0" })),
    await named("pays itself", selfPaying(make)),
  ];
}

async function selfPaying(make: Make): Promise<Body> {
  const { paymentPayload } = await make();
  const { payload } = paymentPayload as unknown as Inner;
  return make({ payTo: payload.authorization["from"] as Address });
}

async function falsePayments(
  make: Make,
  chain: TestChain,
  payTo: Address,
  poor: Payment["payer"],
): Promise<Bent[]> {
  const other = privateKeyToAccount(generatePrivateKey());
  const changes: [string, Partial<Payment>][] = [
    ["another signer", { signer: other }],
    ["another from", { from: other.address }],
    ["another recipient", { signedTo: other.address }],
    ["less than required", { value: "999" }],
    ["more than required", { value: "1001" }],
    ["expired long ago", { validBefore: "1000" }],
    ["expired now", { validBefore: String(now()) }],
    ["expires in 5 s", { validBefore: String(now() + 5) }],
    ["valid later", { validAfter: String(now() + 1000) }],
    ["never valid", { validAfter: "2000000000", validBefore: "1000000000" }],
    ["signed for another chain", { signedChainId: 8453 }],
    ["signed with another name", { signedName: "USD Coin" }],
    ["required with another name", { domainName: "USD Coin" }],
    ["both with another name", { domainName: "USD Coin", signedName: "USD Coin" }],
    ["batched gateway", { domainName: "GatewayWalletBatched", signedName: "GatewayWalletBatched" }],
    ["signed with another version", { signedVersion: "1" }],
    ["both with another version", { domainVersion: "1", signedVersion: "1" }],
    ["asset is an account", { asset: other.address }],
    ["asset is another contract", { asset: "0xcA11bde05977b3631167028862bE2a173976CA11" }],
    ["another network", { network: "eip155:8453" }],
    ["another scheme", { scheme: "upto" }],
    ["no balance", { payer: poor, signer: poor }],
    ["more than the balance", { amount: "1000000001" }],
    ["huge value", { amount: String(2n ** 256n - 1n) }],
    ["no balance and expired", { payer: poor, signer: poor, validBefore: "1000" }],
    ["another signer and recipient", { signer: other, signedTo: other.address }],
    ["another recipient and amount", { signedTo: other.address, value: "5" }],
  ];
  const accepted: [string, string, unknown][] = [
    ["accepted another network", "paymentPayload.accepted.network", "eip155:1"],
    ["accepted another scheme", "paymentPayload.accepted.scheme", "upto"],
    ["accepted another amount", "paymentPayload.accepted.amount", "1"],
    ["accepted another payTo", "paymentPayload.accepted.payTo", other.address],
    ["accepted another asset", "paymentPayload.accepted.asset", other.address],
    [
      "accepted more extra",
      "paymentPayload.accepted.extra",
      { name: "USDC", version: "2", more: 1 },
    ],
  ];
  return [
    ...(await Promise.all(changes.map(([name, options]) => named(name, make(options))))),
    ...(await Promise.all(
      accepted.map(async ([name, path, value]) => named(name, change(await make(), path, value))),
    )),
    await named(
      "permit2 payload",
      change(await make(), "paymentPayload.payload", {
        signature: "0x",
        permit2Authorization: { from: payTo },
      }),
    ),
    await named("blocked payer", blockedPayer(chain, make)),
  ];
}

async function blockedPayer(chain: TestChain, make: Make): Promise<Body> {
  const blocked = privateKeyToAccount(generatePrivateKey());
  await chain.mint(blocked.address, 1_000_000n);
  const hash = await chain.walletClient(chain.admin).writeContract({
    address: chain.usdc,
    abi: [
      {
        type: "function",
        name: "blacklist",
        stateMutability: "nonpayable",
        inputs: [{ name: "account", type: "address" }],
        outputs: [],
      },
    ],
    functionName: "blacklist",
    args: [blocked.address],
  });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  return make({ payer: blocked, signer: blocked });
}

async function signatures(make: Make): Promise<Bent[]> {
  const path = "paymentPayload.payload.signature";
  const resign = async (name: string, bend: (signature: Hex) => string): Promise<Bent> => {
    const body = await make();
    const { payload } = body.paymentPayload as unknown as Inner;
    return named(name, change(body, path, bend(payload.signature)));
  };
  const flip = (text: string, at: number): string =>
    text.slice(0, at) + (text[at] === "0" ? "1" : "0") + text.slice(at + 1);
  return Promise.all([
    resign("compact signature", (hex) =>
      serializeCompactSignature(signatureToCompactSignature(parseSignature(hex))),
    ),
    resign("v as 0 or 1", (hex) => `${hex.slice(0, 130)}0${hex.endsWith("1c") ? 1 : 0}`),
    resign("v wrong", (hex) => `${hex.slice(0, 130)}${hex.endsWith("1c") ? "1b" : "1c"}`),
    resign("v 29", (hex) => `${hex.slice(0, 130)}1d`),
    resign("high s", (hex) => {
      const s = ORDER - BigInt(`0x${hex.slice(66, 130)}`);
      return `${hex.slice(0, 66)}${numberToHex(s, { size: 32 }).slice(2)}${hex.endsWith("1c") ? "1b" : "1c"}`;
    }),
    resign("upper case", (hex) => `0x${hex.slice(2).toUpperCase()}`),
    resign("one digit of r", (hex) => flip(hex, 20)),
    resign("one digit of s", (hex) => flip(hex, 100)),
    resign("r zero", (hex) => `0x${"0".repeat(64)}${hex.slice(66)}`),
    resign("s zero", (hex) => `${hex.slice(0, 66)}${"0".repeat(64)}1b`),
    resign("r too large", (hex) => `0x${"f".repeat(64)}${hex.slice(66)}`),
    resign("64 zero bytes", () => `0x${"00".repeat(64)}`),
    resign("65 zero bytes", () => `0x${"00".repeat(65)}`),
    resign("too long", (hex) => `${hex}00`),
    resign("without 0x", (hex) => hex.slice(2)),
    resign("odd digits", (hex) => hex.slice(0, -1)),
    resign("ERC-6492 ending only", (hex) => `${hex}${"6492".repeat(16)}`),
    resign("10 KB", () => `0x${"ab".repeat(10_000)}`),
  ]);
}

async function used(make: Make, chain: TestChain): Promise<Bent[]> {
  const body = await make();
  const { payload } = body.paymentPayload as unknown as Inner;
  const { from, to, value, validAfter, validBefore, nonce } = payload.authorization as Record<
    string,
    Hex
  >;
  const hash = await chain.walletClient(chain.admin).writeContract({
    address: chain.usdc,
    abi: [
      {
        type: "function",
        name: "transferWithAuthorization",
        stateMutability: "nonpayable",
        outputs: [],
        inputs: [
          { name: "from", type: "address" },
          { name: "to", type: "address" },
          { name: "value", type: "uint256" },
          { name: "validAfter", type: "uint256" },
          { name: "validBefore", type: "uint256" },
          { name: "nonce", type: "bytes32" },
          { name: "signature", type: "bytes" },
        ],
      },
    ],
    functionName: "transferWithAuthorization",
    args: [
      from,
      to,
      BigInt(value ?? 0),
      BigInt(validAfter ?? 0),
      BigInt(validBefore ?? 0),
      nonce,
      payload.signature,
    ] as never,
  });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  const again = await make({ nonce: nonce ?? "0x", amount: "5" });
  const tooMuch = await make({ nonce: nonce ?? "0x", amount: "1000000001" });
  const named2 = await make({ nonce: nonce ?? "0x", domainName: "X", signedName: "X" });
  return [
    { name: "used", body },
    { name: "used nonce, other terms", body: again },
    { name: "used nonce, no balance", body: tooMuch },
    { name: "used nonce, another name", body: named2 },
  ];
}

async function wallets(make: Make, chain: TestChain): Promise<Bent[]> {
  const owner = privateKeyToAccount(generatePrivateKey());
  const bent: Bent[] = [];
  for (const mode of MODES) {
    const wallet = await deployWallet(chain, owner.address, mode);
    await chain.mint(wallet, 1_000_000n);
    bent.push(await named(`wallet ${mode}`, make({ from: wallet, signer: owner })));
    bent.push(await named(`wallet ${mode}, another signer`, make({ from: wallet })));
  }
  const poor = await deployWallet(chain, owner.address, "Honest");
  bent.push(await named("wallet without balance", make({ from: poor, signer: owner })));
  const future = await futureWallet(chain, owner.address);
  await chain.mint(future.address, 1_000_000n);
  const wrap = (body: Body): Body => {
    const { payload } = body.paymentPayload as unknown as Inner;
    return change(body, "paymentPayload.payload.signature", future.wrap(payload.signature));
  };
  bent.push(
    await named("undeployed wallet", wrap(await make({ from: future.address, signer: owner }))),
  );
  bent.push(
    await named("undeployed wallet, another signer", wrap(await make({ from: future.address }))),
  );
  bent.push(
    await named("undeployed wallet, no deployment", make({ from: future.address, signer: owner })),
  );
  bent.push(await named("key behind a deployment envelope", wrap(await make())));
  return bent;
}

async function garbage(make: Make): Promise<Bent[]> {
  const bent: Bent[] = [];
  for (const path of PATHS) {
    for (const value of GARBAGE)
      bent.push({
        name: `${path} = ${JSON.stringify(value) ?? "absent"}`.slice(0, 90),
        body: change(await make(), path, value),
      });
  }
  const { payload } = (await make()).paymentPayload as unknown as Inner;
  const from = payload.authorization["from"] as Address;
  const wrongCase = from.replace(/[a-fA-F]/, (digit) =>
    digit === digit.toLowerCase() ? digit.toUpperCase() : digit.toLowerCase(),
  );
  bent.push({
    name: "from with a wrong checksum",
    body: change(await make(), "paymentPayload.payload.authorization.from", wrongCase),
  });
  bent.push({ name: "payTo with a wrong checksum", body: await withWrongChecksum(make) });
  return bent;
}

async function withWrongChecksum(make: Make): Promise<Body> {
  const body = await make();
  const payTo = getAddress(body.paymentRequirements["payTo"] as Address);
  const wrong = payTo.replace(/[a-f]/, (digit) => digit.toUpperCase());
  return change(body, "paymentRequirements.payTo", wrong);
}

interface Inner {
  payload: { signature: Hex; authorization: Record<string, unknown> };
}

const now = (): number => Math.floor(Date.now() / 1000);
const blockTime = async ({ publicClient }: TestChain): Promise<bigint> =>
  (await publicClient.getBlock()).timestamp;

/** A copy with one field replaced; undefined removes it. `accepted` becomes a separate object, as in JSON. */
export function change(body: Body, path: string, value: unknown): Body {
  const copy = structuredClone(body);
  copy.paymentPayload["accepted"] = structuredClone(body.paymentPayload["accepted"]);
  copy.paymentRequirements = structuredClone(body.paymentRequirements);
  const names = path.split(".");
  const last = names.pop() ?? "";
  let holder = copy as unknown as Record<string, unknown>;
  for (const name of names) holder = holder[name] as Record<string, unknown>;
  if (value === undefined) delete holder[last];
  else holder[last] = value;
  return copy;
}

function withExtras(body: Body): Body {
  let copy = change(body, "paymentRequirements.surprise", { deep: [1] });
  copy = change(copy, "paymentPayload.payload.authorization.surprise", "x");
  copy = change(copy, "paymentPayload.extensions", { bazaar: { info: {}, schema: {} } });
  return { ...copy, surprise: true } as Body;
}
