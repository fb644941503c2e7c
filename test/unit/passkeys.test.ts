// Goal: a passkey's signature counts only if the device verified the person, on a page and a domain of ours, for exactly this
// order, with a key that the owner's own orders list: nothing else in it or around it can be changed.
import { randomBytes } from "node:crypto";
import t from "tap";
import { keccak256, toHex, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { orderDigest, typedDataOf, type Orders } from "../../server/core/orders.ts";
import { passkeyPlaces } from "../../server/core/passkey-places.ts";
import {
  addressOfPasskey,
  isPasskeySignature,
  isSameKey,
  keyAtDomain,
  PASSKEYS_CHAIN,
  passkeyThatSigned,
  readPasskeySignature,
  writePasskeySignature,
} from "../../server/core/passkeys.ts";
import { payoutAt, PAYOUT_WAIT_SECONDS } from "../../server/core/payout.ts";
import {
  OwnerSignatures,
  type Identity,
  type StoredOrder,
} from "../../server/plugins/orders/signatures.ts";
import { testPasskey, type Said, type TestPasskey } from "../helpers/passkey.ts";

const PAGE = "https://purser.example.com";
const places = passkeyPlaces(PAGE);
const hash = keccak256(toHex("an order"));

t.test("what a browser and a device must have said", async (t) => {
  const passkey = testPasskey(PAGE);
  const signed = (said: Said = {}) => ({ hash, signature: passkey.signHash(hash, said) });
  t.same(passkeyThatSigned(signed({ count: 7 }), places), { key: passkey.key, count: 7 });
  const wrong: Record<string, Said> = {
    "another page": { origin: "https://evil.example" },
    "a page below ours": { origin: "https://x.purser.example.com" },
    "a page on another port": { origin: `${PAGE}:8443` },
    "another domain": { domain: "evil.example" },
    "a registration": { type: "webauthn.create" },
    "a frame of another page": { crossOrigin: true },
    "a person who was not verified": { isVerified: false },
    "a person who was not there": { isPresent: false },
    "a device that does not count": { bytes: 36 },
    "a browser that says nothing": { edit: () => "null" },
    "no JSON": { edit: (text) => text.slice(1) },
    "a page in a list": { edit: (text) => text.replace(`"${PAGE}"`, `["${PAGE}"]`) },
  };
  for (const [what, said] of Object.entries(wrong))
    t.equal(passkeyThatSigned(signed(said), places), undefined, what);
  const older = { edit: (text: string) => text.replace(',"crossOrigin":false', "") };
  t.ok(passkeyThatSigned(signed(older), places), "a browser that knows no frames");
  t.ok(
    passkeyThatSigned(signed({ origin: "https://old.example", domain: "old.example" })),
    "a document that was checked when it was signed may be from another page",
  );
  for (const said of [{ isVerified: false }, { crossOrigin: true }, { type: "webauthn.create" }])
    t.equal(passkeyThatSigned(signed(said)), undefined, `never: ${JSON.stringify(said)}`);
  t.equal(passkeyThatSigned({ ...signed(), hash: keccak256("0x01") }, places), undefined);
});

t.test("the domain that a device names", async (t) => {
  const passkey = testPasskey(PAGE);
  const signed = passkey.signHash(hash, { origin: "https://c1.purser.example.com" });
  t.same(keyAtDomain(signed, "purser.example.com"), passkey.key);
  t.equal(keyAtDomain(signed, "c1.purser.example.com"), undefined);
  t.equal(keyAtDomain(`0x${"1".repeat(130)}`, "purser.example.com"), undefined, "a wallet's");
});

t.test("no byte of a signature can be changed", async (t) => {
  const passkey = testPasskey(PAGE);
  const signature = passkey.signHash(hash);
  for (let at = 2; at < signature.length; at += 2) {
    const byte = (Number.parseInt(signature.slice(at, at + 2), 16) ^ 1).toString(16);
    const changed = `${signature.slice(0, at)}${byte.padStart(2, "0")}${signature.slice(at + 2)}`;
    const by = passkeyThatSigned({ hash, signature: changed });
    if (by) t.fail(`byte ${at / 2 - 1} was changed, and it is still a signature`);
  }
  t.equal(passkeyThatSigned({ hash, signature: `${signature}00` }), undefined, "a byte more");
  t.equal(passkeyThatSigned({ hash, signature: signature.slice(0, -2) }), undefined, "one less");
  t.equal(passkeyThatSigned({ hash, signature: signature.slice(0, 300) }), undefined, "half of it");
});

t.test("the text of a signature", async (t) => {
  const passkey = testPasskey(PAGE);
  const signature = passkey.signHash(hash);
  const read = readPasskeySignature(signature);
  if (!read) throw new Error("it cannot be read");
  t.equal(writePasskeySignature(read), signature);
  t.same({ x: read.x, y: read.y }, passkey.key);
  t.ok(isPasskeySignature(signature.toUpperCase().replace("0X", "0x")));
  const wallet = await privateKeyToAccount(generatePrivateKey()).signMessage({ message: "x" });
  t.notOk(isPasskeySignature(wallet));
  for (const wrong of ["0x", "0x706173736b657931", `${signature}0`, `${signature}zz`, wallet])
    t.equal(readPasskeySignature(wrong), undefined, wrong.slice(0, 40));
  t.throws(() => writePasskeySignature({ ...read, r: "0x12" }), /64 digits/);
  t.throws(
    () => writePasskeySignature({ ...read, authenticatorData: new Uint8Array(70_000) }),
    /too long/,
  );
  const [none, most] = [0, 0xffff].map((length) => new Uint8Array(length).fill(7)) as [
    Uint8Array,
    Uint8Array,
  ];
  for (const [authenticatorData, clientData] of [
    [none, none],
    [none, read.clientData],
    [read.authenticatorData, none],
    [most, none],
  ] as const) {
    const whole = { ...read, authenticatorData, clientData };
    t.same(readPasskeySignature(writePasskeySignature(whole)), whole);
  }
  const short = writePasskeySignature({ ...read, clientData: none }).slice(0, -2);
  t.equal(readPasskeySignature(short), undefined, "less than its length says");
  const { x, y } = read;
  t.ok(isSameKey(read, { x, y }));
  for (const other of [
    { x, y: x },
    { x: y, y },
    { x: y, y: x },
  ])
    t.notOk(isSameKey(read, other));
  // A key that is no point of the curve.
  const offCurve = { ...read, x: `0x${"11".repeat(32)}` };
  t.equal(passkeyThatSigned({ hash, signature: writePasskeySignature(offCurve) }), undefined);
});

t.test("where passkeys can be used", async (t) => {
  const of = (url: string, domain?: string) => {
    const found = passkeyPlaces(url, domain);
    return found && { domain: found.domain, origins: [...found.origins] };
  };
  t.same(of(PAGE), { domain: "purser.example.com", origins: [PAGE] });
  t.same(of("http://localhost:3000"), { domain: "localhost", origins: ["http://localhost:3000"] });
  t.same(of("http://127.0.0.1:3000"), { domain: "localhost", origins: ["http://localhost:3000"] });
  t.same(of("https://new.example", "old.example"), {
    domain: "old.example",
    origins: ["https://new.example"],
  });
  t.equal(of("https://192.0.2.1"), undefined);
  t.equal(of("https://[2001:db8::1]:8443"), undefined);
});

const CHAIN_ID = 1337;
type Signer = Pick<TestPasskey, "signTypedData">;

/** Orders that list passkeys, as they are stored. */
async function list(
  owner: Identity,
  by: Signer,
  version: number,
  ...passkeys: TestPasskey[]
): Promise<StoredOrder> {
  const document: Orders["Passkeys"] = {
    owner: owner.address,
    version: String(version),
    passkeys: passkeys.map(({ key }, index) => ({ name: `Key ${index}`, ...key })),
    nonce: toHex(randomBytes(32)),
    deadline: "1800000000",
  };
  const signature = await by.signTypedData(
    typedDataOf("Passkeys", document, CHAIN_ID, "numbers") as never,
  );
  const digest = orderDigest("Passkeys", document, CHAIN_ID, "numbers");
  return { document, digest, signature, chainId: CHAIN_ID };
}

function signaturesOf(orders: StoredOrder[], at = places) {
  const signatures = new OwnerSignatures({
    chains: { byChainId: () => undefined, verified: new Set() } as never,
    places: at,
    listsOf: async (_owner, known) => ({ count: orders.length, next: orders.slice(known) }),
    membersOf: async () => ({ count: 0, next: [] }),
  });
  return (owner: Identity, by: TestPasskey, time: "now" | "ever" = "now", said: Said = {}) =>
    signatures.isSigned(owner, { hash, signature: by.signHash(hash, said) }, time);
}

const ownerOf = (passkey: TestPasskey): Identity => ({
  address: addressOfPasskey(passkey.key),
  chainId: PASSKEYS_CHAIN,
});

t.test("the passkeys of an owner without a wallet", async (t) => {
  const [first, second, third, thief] = [1, 2, 3, 4].map(() => testPasskey(PAGE)) as [
    TestPasskey,
    TestPasskey,
    TestPasskey,
    TestPasskey,
  ];
  const owner = ownerOf(first);
  const orders: StoredOrder[] = [];
  const verdict = signaturesOf(orders);
  t.equal(await verdict(owner, first), "valid", "its first needs no list");
  t.equal(await verdict(owner, second), "invalid");
  orders.push(await list(owner, first, 1, first, second));
  t.equal(await verdict(owner, second), "valid", "listed by the first");
  orders.push(await list(owner, second, 2, second, third));
  t.equal(await verdict(owner, first), "invalid", "removed by the second");
  t.equal(await verdict(owner, first, "ever"), "valid", "what it signed before stays signed");
  t.equal(await verdict(owner, third), "valid");
  t.equal(await verdict(owner, thief, "ever"), "invalid");
  t.equal(await verdict({ ...owner, chainId: 0 }, first, "ever"), "invalid", "not for a wallet");

  const moved = signaturesOf(orders, passkeyPlaces("https://new.example"));
  t.equal(await moved(owner, third), "invalid", "a page that is no longer ours");
  t.equal(await moved(owner, third, "ever"), "valid", "documents outlive a move");
  const nowhere = new OwnerSignatures({
    chains: {} as never,
    places: undefined,
    listsOf: async () => ({ count: 0, next: [] }),
    membersOf: async () => ({ count: 0, next: [] }),
  });
  const signed = { hash, signature: first.signHash(hash) };
  t.equal(await nowhere.isSigned(owner, signed), "invalid", "custody that knows no page");
  const wallet = privateKeyToAccount(generatePrivateKey());
  const byWallet = { hash, signature: await wallet.sign({ hash }) };
  t.equal(await nowhere.isSigned(owner, byWallet), "invalid", "a wallet's signature is not its");
});

t.test("the passkeys of an owner with a wallet", async (t) => {
  const wallet = privateKeyToAccount(generatePrivateKey());
  const owner: Identity = { address: wallet.address.toLowerCase() as Address, chainId: 0 };
  const [passkey, other] = [testPasskey(PAGE), testPasskey(PAGE)];
  const orders: StoredOrder[] = [];
  const verdict = signaturesOf(orders);
  t.equal(await verdict(owner, passkey), "invalid");
  orders.push(await list(owner, wallet, 1, passkey));
  t.equal(await verdict(owner, passkey), "valid");
  orders.push(await list(owner, passkey, 2, passkey, other));
  t.equal(await verdict(owner, other), "valid", "a passkey lists another");
  orders.push(await list(owner, wallet, 3));
  t.equal(await verdict(owner, other), "invalid", "the wallet removes all");
  t.equal(await verdict(owner, other, "ever"), "valid");
});

t.test("lists that were tampered with allow nothing", async (t) => {
  const [first, second, thief] = [testPasskey(PAGE), testPasskey(PAGE), testPasskey(PAGE)];
  const owner = ownerOf(first);
  const good = await list(owner, first, 1, first, second);
  const bad: Record<string, StoredOrder[]> = {
    "signed by a stranger": [await list(owner, thief, 1, thief)],
    "signed by the key that it adds": [good, await list(owner, thief, 2, first, second, thief)],
    "a version that is left out": [await list(owner, first, 2, thief, first)],
    "the same version twice": [good, await list(owner, first, 1, first, thief)],
    "of another owner": [await list(ownerOf(thief), thief, 1, thief)],
    "a document with another key": [
      {
        ...good,
        document: { ...(good.document as object), passkeys: [{ ...thief.key, name: "x" }] },
      },
    ],
    "another digest": [{ ...good, digest: keccak256("0x02") }],
    "another chain": [{ ...good, chainId: 1 }],
    "no document": [{ ...good, document: {} }],
    "signed by a removed key": [
      await list(owner, first, 1, second),
      await list(owner, first, 2, first, thief),
    ],
  };
  for (const [what, orders] of Object.entries(bad)) {
    const verdict = signaturesOf(orders);
    t.equal(await verdict(owner, thief), "invalid", what);
    t.equal(await verdict(owner, thief, "ever"), "invalid", what);
  }

  const orders = [good];
  const verdict = signaturesOf(orders);
  t.equal(await verdict(owner, second), "valid");
  orders.pop();
  t.equal(await verdict(owner, first), "invalid", "an older state was restored");
});

t.test("a payout address", async (t) => {
  const [a, b, c] = ["a", "b", "c"].map((digit) => `0x${digit.repeat(40)}`) as [Hex, Hex, Hex];
  const day = BigInt(PAYOUT_WAIT_SECONDS);
  const order = (version: number, payout: Hex, deadline: bigint) => ({
    version: String(version),
    payout,
    deadline: String(deadline),
  });
  t.equal(payoutAt([], 0n), undefined);
  t.same(payoutAt([order(1, a, 1_000n)], 0n), { address: a, next: null }, "the first is at once");
  const two = [order(1, a, 1_000n), order(2, b, 5_000n)];
  const waiting = { address: a, next: { address: b, fromSeconds: 5_000n + day } };
  t.same(payoutAt(two, 5_000n + day - 1n), waiting);
  t.same(payoutAt(two.toReversed(), 5_000n + day - 1n), waiting, "in any order of the rows");
  t.same(payoutAt(two, 5_000n + day), {
    address: b,
    sinceSeconds: 5_000n + day,
    next: null,
  });
  t.same(payoutAt([...two, order(3, c, 6_000n)], 6_000n + day - 1n), {
    address: a,
    next: { address: c, fromSeconds: 6_000n + day },
  });
  const back = [...two, order(3, a, 6_000n)];
  for (const at of [7_000n, 7_000n + day])
    t.same(payoutAt(back, at), { address: a, next: null }, "taken back");
  t.same(payoutAt([...two, order(3, c, 5_000n + day)], 5_000n + day), {
    address: b,
    sinceSeconds: 5_000n + day,
    next: { address: c, fromSeconds: 5_000n + 2n * day },
  });
  const home = [...two, order(3, b, 5_000n + day), order(4, b, 6_000n + day)];
  t.same(
    payoutAt(home, 9n * day),
    { address: b, sinceSeconds: 5_000n + day, next: null },
    "naming the address in force again changes nothing",
  );
  t.equal(payoutAt([order(2, b, 5_000n)], 9n * day), undefined, "the first row was deleted");
  t.equal(payoutAt([...two, order(2, c, 6_000n)], 9n * day), undefined, "two of one version");
});
