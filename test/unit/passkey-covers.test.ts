// Goal: custody lets a passkey, and the recovery wallet of an owner without a wallet, withdraw only to the owner's own address,
// and asks for what a document needs: a passkey that is listed now for something new, one that ever was for what is in force.
import t from "tap";
import type { Address, Hex } from "viem";
import { orderDigest, type OrderKind, type Orders } from "../../server/core/orders.ts";
import { PASSKEYS_CHAIN } from "../../server/core/passkeys.ts";
import {
  Covers,
  type LoadedWallet,
  type SignedDocument,
} from "../../server/plugins/custody/covers.ts";
import { NOTHING } from "../../server/plugins/custody/envelope.ts";
import type { Time } from "../../server/plugins/orders/signatures.ts";
import { testPasskey } from "../helpers/passkey.ts";

const CHAIN_ID = 1337;
const NOW = 1_800_000_000n;
const DAY = 86_400n;
const address = (digit: string): Address => `0x${digit.repeat(40)}`;
const hash = (digit: string): Hex => `0x${digit.repeat(64)}`;
const [WALLET, ASSET, HOME, OTHER, SECOND] = ["1", "2", "3", "4", "5"].map(address) as [
  Address,
  Address,
  Address,
  Address,
  Address,
];
const EOA = address("6");
const passkey = testPasskey("https://purser.example.com");
const BY_WALLET: Hex = `0x${"7".repeat(130)}`;

function stored<K extends OrderKind>(kind: K, order: Orders[K]): SignedDocument {
  const digest = orderDigest(kind, order, CHAIN_ID, "readable");
  return { document: order, digest, signature: passkey.signHash(digest), chainId: CHAIN_ID };
}
const named = (payout: Address, version: number, owner = passkey.address, deadline = NOW) =>
  stored("PayoutAddress", {
    owner,
    version: String(version),
    payout,
    nonce: hash("8"),
    deadline: String(deadline),
  });

interface Case {
  what: string;
  owner?: { address: Address; chainId: number };
  to?: Address;
  byWallet?: true;
  payouts?: SignedDocument[];
  /** Digests of payout orders that nobody signed. */
  forged?: string[];
  bySecond?: true;
  isCovered: boolean;
}

async function outcome({ owner, to = HOME, byWallet, payouts, forged, bySecond }: Case) {
  const { address: ownerAddress, chainId } = owner ?? {
    address: passkey.address,
    chainId: PASSKEYS_CHAIN,
  };
  const order: Orders["Withdraw"] = {
    wallet: WALLET,
    to,
    asset: ASSET,
    amount: "500",
    nonce: hash("9"),
    deadline: String(NOW + 60n),
  };
  const digest = orderDigest("Withdraw", order, CHAIN_ID, "readable");
  const loaded = {
    agentId: "agt_1",
    address: WALLET,
    ownerAddress,
    ownerChainId: chainId,
    policyDigest: NOTHING,
    rulesDigest: NOTHING,
    revision: 1,
    nowSeconds: NOW,
  } as LoadedWallet;
  const asked: [string, Time][] = [];
  const stated = payouts ?? [named(HOME, 1)];
  const naming = stored("SecondWallet", {
    owner: ownerAddress,
    second: SECOND,
    secondChain: "0",
    nonce: hash("3"),
    deadline: "9",
  });
  const covers = new Covers({
    load: async () => loaded,
    loadEvidence: async () => undefined,
    findWithdrawal: async () => ({
      to,
      amountAtomic: 500n,
      deadlineSeconds: NOW + 60n,
      signature: byWallet || bySecond ? BY_WALLET : passkey.signHash(digest),
    }),
    findSecond: async () => (bySecond ? naming : undefined),
    findApproval: async () => undefined,
    findPayouts: async () => stated,
    isSigned: async (who, signed, time) => {
      const isDocument = [naming, ...stated].some((one) => one.digest === signed.hash);
      const kind = isDocument ? "document" : "withdrawal";
      asked.push([kind, time]);
      if (kind === "document") return forged?.includes(signed.hash) ? "invalid" : "valid";
      return (who.address === SECOND) === (bySecond ?? false) ? "valid" : "invalid";
    },
  });
  const authorization = {
    chainId: CHAIN_ID,
    asset: ASSET,
    from: WALLET,
    to,
    value: 500n,
    validAfter: 0n,
    validBefore: NOW + 30n,
    nonce: hash("9"),
  };
  const cover = { kind: "withdrawal", orderNonce: hash("9") } as const;
  const isCovered = await covers.check({ agentId: "agt_1", authorization, cover }).then(
    () => true,
    () => false,
  );
  return { isCovered, asked };
}

const forgedPayout = named(OTHER, 1);
const waiting = named(OTHER, 2, passkey.address, NOW - DAY + 1n);
const due = named(OTHER, 2, passkey.address, NOW - DAY);
const withWallet = { address: EOA, chainId: 0 };
const CASES: Case[] = [
  { what: "to the payout address", isCovered: true },
  { what: "elsewhere", to: OTHER, isCovered: false },
  { what: "with no payout address", payouts: [], isCovered: false },
  { what: "to the name of the owner", to: passkey.address, isCovered: false },
  { what: "to one that waits", to: OTHER, payouts: [named(HOME, 1), waiting], isCovered: false },
  { what: "to the one before it", payouts: [named(HOME, 1), waiting], isCovered: true },
  { what: "to one that has waited", to: OTHER, payouts: [named(HOME, 1), due], isCovered: true },
  { what: "to the one before that", payouts: [named(HOME, 1), due], isCovered: false },
  {
    what: "to one that nobody signed",
    to: OTHER,
    payouts: [forgedPayout],
    forged: [forgedPayout.digest],
    isCovered: false,
  },
  {
    what: "to one of another owner",
    to: OTHER,
    payouts: [named(OTHER, 1, EOA)],
    isCovered: false,
  },
  { what: "to it, by the recovery wallet", bySecond: true, isCovered: true },
  { what: "elsewhere, by the recovery wallet", bySecond: true, to: OTHER, isCovered: false },
  { what: "to the wallet, by its passkey", owner: withWallet, to: EOA, isCovered: true },
  { what: "elsewhere, by a wallet's passkey", owner: withWallet, to: OTHER, isCovered: false },
  {
    what: "elsewhere, by the wallet",
    owner: withWallet,
    to: OTHER,
    byWallet: true,
    isCovered: true,
  },
  {
    what: "elsewhere, by a contract",
    owner: { address: EOA, chainId: 5 },
    to: OTHER,
    byWallet: true,
    isCovered: true,
  },
];

t.test("where a withdrawal goes", async (t) => {
  for (const one of CASES) {
    const { isCovered, asked } = await outcome(one);
    t.equal(isCovered, one.isCovered, one.what);
    for (const [kind, time] of asked)
      t.equal(time, kind === "withdrawal" ? "now" : "ever", `${one.what}: ${kind}`);
  }
});
