// Goal: an exported audit proves which passkeys signed what: a signature of a key that was not listed then, a withdrawal by
// passkey to another address, and a list out of order are found, even when every hash is valid.
import t from "tap";
import { hashMessage, toHex } from "viem";
import { randomBytes } from "node:crypto";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { orderDigest, typedDataOf, type OrderKind, type Orders } from "../../server/core/orders.ts";
import { PASSKEYS_CHAIN } from "../../server/core/passkeys.ts";
import type { EntryBody } from "../../server/plugins/audit/authority.ts";
import { verifyChain, type ChainRow } from "../../server/plugins/audit/verify.ts";
import { rehash } from "../owners/audit.helper.ts";
import { testPasskey, type TestPasskey } from "../helpers/passkey.ts";

const PAGE = "https://purser.example.com";
const CHAIN_ID = 1337;
const AT = "2026-12-01T10:00:00.000000Z";
const deadline = String(Date.parse("2026-12-01T10:10:00Z") / 1000);
const [first, second, thief] = [testPasskey(PAGE), testPasskey(PAGE), testPasskey(PAGE)];
const wallet = privateKeyToAccount(generatePrivateKey());
const walletAddress = wallet.address.toLowerCase();
const home = `0x${"a".repeat(40)}`;

interface Owner {
  address: string;
  chainId: number;
}
const byKey: Owner = { address: first.address, chainId: PASSKEYS_CHAIN };
const byWallet: Owner = { address: walletAddress, chainId: 0 };
type Signer = Pick<TestPasskey, "signTypedData">;

const entryOf = (owner: Owner, action: string, over: Partial<EntryBody>): Partial<EntryBody> => ({
  at: AT,
  ownerId: "own_1",
  owner: owner.address,
  ownerChainId: owner.chainId,
  agentId: null,
  actor: owner.address,
  action,
  before: null,
  after: null,
  requestId: null,
  proof: null,
  ...over,
});

async function ordered<K extends OrderKind>(
  owner: Owner,
  by: Signer,
  [action, kind]: [string, K],
  order: Omit<Orders[K], "nonce" | "deadline">,
  over: { agentId?: string; after?: object } = {},
): Promise<Partial<EntryBody>> {
  const whole = { ...order, nonce: toHex(randomBytes(32)), deadline } as Orders[K];
  const typedData = typedDataOf(kind, whole, CHAIN_ID, "numbers");
  const signature = await by.signTypedData(typedData as never);
  return entryOf(owner, action, {
    ...(over.agentId && { agentId: over.agentId }),
    after: { nonce: whole.nonce, ...over.after },
    proof: {
      kind: "order",
      digest: orderDigest(kind, whole, CHAIN_ID, "numbers"),
      order: typedData,
      signers: [{ signer: owner.address, chainId: owner.chainId, signature }],
    },
  });
}

const lists = (owner: Owner, by: Signer, version: number, ...passkeys: TestPasskey[]) =>
  ordered(owner, by, ["passkeys.signed", "Passkeys"], {
    owner: owner.address,
    version: String(version),
    passkeys: passkeys.map(({ key }) => ({ name: "x", ...key })),
  });
const pays = (owner: Owner, by: Signer, version: number, payout: string) =>
  ordered(owner, by, ["payout.named", "PayoutAddress"], {
    owner: owner.address,
    version: String(version),
    payout,
  });
const names = (owner: Owner, by: Signer) =>
  ordered(owner, by, ["second.named", "SecondWallet"], {
    owner: owner.address,
    second: home,
    secondChain: "0",
  });
function signIn(owner: Owner, by: TestPasskey, message: string): Partial<EntryBody> {
  const signature = by.signHash(hashMessage(message));
  const { address: signer, chainId } = owner;
  const proof = { kind: "message" as const, message, signer, chainId, signature };
  return entryOf(owner, "session.created", { proof });
}
const TEXT = "Sign in to Purser at purser.example.com with a passkey.\n\nNonce: abc123";

async function verdict(...entries: (Partial<EntryBody> | Promise<Partial<EntryBody>>)[]) {
  const rows: ChainRow[] = [];
  for (const entry of entries) {
    const seq = rows.length + 1;
    const body = JSON.stringify({ id: `aud_${seq}`, ...(await entry), seq });
    rows.push({ seq, prevHash: "", hash: "", body });
  }
  const found = await verifyChain(rehash(rows, 0));
  return found.ok ? "ok" : `${found.seq}: ${found.why}`;
}

t.test("an owner without a wallet", async (t) => {
  const list = lists(byKey, first, 1, first, second);
  t.equal(await verdict(signIn(byKey, first, TEXT), list, signIn(byKey, second, `${TEXT}4`)), "ok");
  const notIts = `2: its signature is not by a passkey of ${byKey.address}`;
  t.equal(await verdict(list, signIn(byKey, thief, TEXT)), notIts);
  t.equal(await verdict(list, lists(byKey, thief, 2, thief)), notIts);
  const removes = lists(byKey, second, 2, second);
  t.equal(await verdict(list, removes, names(byKey, second)), "ok");
  t.match(await verdict(list, removes, names(byKey, first)), /^3: its signature is not by/);
  t.match(await verdict(names(byKey, second), list), /^1: its signature is not by/);
  t.match(await verdict(list, lists(byKey, first, 3, first)), /^2: differs from its signed order/);
  t.match(await verdict(lists(byWallet, wallet, 1, first), list), /^2: it names a different owner/);
  t.match(await verdict(pays(byKey, first, 2, home)), /^1: differs/);
  t.equal(await verdict(pays(byKey, first, 1, home), pays(byKey, first, 2, home)), "ok");
});

t.test("an owner with a wallet", async (t) => {
  const list = lists(byWallet, wallet, 1, first);
  t.match(await verdict(names(byWallet, first)), /^1: its signature is not by/);
  t.equal(await verdict(list, names(byWallet, first), names(byWallet, wallet)), "ok");
  t.match(await verdict(list, lists(byWallet, wallet, 2), names(byWallet, first)), /^3: its sign/);
});

t.test("a text that is not of a sign-in", async (t) => {
  const list = lists(byKey, first, 1, first);
  for (const text of ["Hello", `${TEXT}\nMore`, `x ${TEXT}`])
    t.match(await verdict(list, signIn(byKey, first, text)), /^2: .* not of a sign-in/, text);
});
