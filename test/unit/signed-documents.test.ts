// Goal: documents signed by an owner or a wallet are read line by line and field by field; any difference makes another document or none.
import * as fc from "fast-check";
import t from "tap";
import { getAddress, type Address, type Hex } from "viem";
import { createSiweMessage } from "viem/siwe";
import { NETWORKS } from "../../server/core/networks.ts";
import {
  approvalOrder,
  keyOrder,
  ORDER_KINDS,
  readOptional,
  typesOf,
  orderDigest,
  readOrder,
  type OrderKind,
  type Orders,
  REQUESTED_FORM,
} from "../../server/core/orders.ts";
import { ownOrigins } from "../../server/plugins/auth/index.ts";
import { readChallenge } from "../../server/plugins/custody/sign-in.ts";
import { checkSiwe, parseSiwe, type SiweFields } from "../../server/plugins/owners/sign-in.ts";
import { isEnded, nonceOf, storedNonce } from "../../server/schemes/permit2/onchain.ts";

const hex = (bytes: number) =>
  fc
    .uint8Array({ minLength: bytes, maxLength: bytes })
    .map((some): Hex => `0x${Buffer.from(some).toString("hex")}`);
const often = <T>(usual: T, ...others: T[]) =>
  fc.oneof({ weight: 5, arbitrary: fc.constant(usual) }, fc.constantFrom(...others));
const NOW = new Date("2026-05-01T12:00:00.000Z");
const at = (seconds: number): Date => new Date(NOW.getTime() + seconds * 1_000);
const own = ownOrigins("https://purser.example");

const fields = fc.record(
  {
    address: hex(20).map((lower) => getAddress(lower)),
    chainId: fc.integer({ min: 1, max: 2 ** 40 }),
    domain: often("purser.example", "evil.example", "purser.example:8443"),
    nonce: fc.stringMatching(/^[a-zA-Z0-9]{8,40}$/),
    uri: often("https://purser.example/sign-in", "https://evil.example/"),
    version: fc.constant("1" as const),
    issuedAt: fc.integer({ min: -900, max: 600 }).map(at),
    statement: fc.stringMatching(/^[A-Za-z0-9 .,:'-]{1,30}$/),
    expirationTime: fc.integer({ min: -100, max: 900 }).map(at),
    notBefore: fc.integer({ min: -900, max: 100 }).map(at),
    requestId: fc.stringMatching(/^[a-z0-9]{1,10}$/),
    resources: fc.constant(["https://a.example/b", "ipfs://c"]),
    scheme: often("https", "http"),
  },
  { requiredKeys: ["address", "chainId", "domain", "nonce", "uri", "version", "issuedAt"] },
);

t.test("a sign-in message is read back as written, and accepted by its fields", async (t) => {
  let believed = 0;
  fc.assert(
    fc.property(fields, (wanted) => {
      const read = parseSiwe(createSiweMessage(wanted as Parameters<typeof createSiweMessage>[0]));
      if (!read) return false;
      const time = (date: Date | undefined) => date?.getTime();
      const isTrue =
        read.address === wanted.address.toLowerCase() &&
        read.chainId === wanted.chainId &&
        read.domain === wanted.domain &&
        read.nonce === wanted.nonce &&
        read.uri === wanted.uri &&
        read.version === "1" &&
        read.scheme === wanted.scheme &&
        time(read.issuedAt) === time(wanted.issuedAt) &&
        time(read.expirationTime) === time(wanted.expirationTime) &&
        time(read.notBefore) === time(wanted.notBefore);
      const isForUs =
        wanted.domain === "purser.example" &&
        wanted.uri === "https://purser.example/sign-in" &&
        wanted.scheme !== "http" &&
        wanted.issuedAt <= at(300) &&
        (wanted.expirationTime === undefined || wanted.expirationTime > NOW) &&
        (wanted.notBefore === undefined || wanted.notBefore <= NOW);
      const expected = { own, chainIds: [wanted.chainId], now: NOW };
      if (isForUs) believed += 1;
      return (
        isTrue &&
        checkSiwe(read, expected).ok === isForUs &&
        !checkSiwe(read, { ...expected, chainIds: [wanted.chainId + 1] }).ok
      );
    }),
    { numRuns: 600 },
  );
  t.ok(believed > 30, `${believed} were for us`);
});

/** A reference parser by lines, from the top: each label in order, and nothing before or between. */
function linesOf(message: string): Partial<Record<keyof SiweFields, string>> | undefined {
  const lines = message.split("\n");
  const [, scheme, domain] =
    /^(?:([a-z][a-z0-9+.-]*):\/\/)?(\S+) wants you to sign in with your Ethereum account:$/.exec(
      lines[0] ?? "",
    ) ?? [];
  if (domain === undefined || lines[2] !== "") return undefined;
  let next = lines[4] === "" && lines[3] !== "" ? 5 : lines[3] === "" ? 4 : 3;
  const found: Record<string, string> = { domain, address: (lines[1] ?? "").toLowerCase() };
  if (scheme !== undefined) found["scheme"] = scheme;
  const LABELS: [label: string, name: string, isNeeded: boolean][] = [
    ["URI: ", "uri", true],
    ["Version: ", "version", true],
    ["Chain ID: ", "chainId", true],
    ["Nonce: ", "nonce", true],
    ["Issued At: ", "issuedAt", true],
    ["Expiration Time: ", "expirationTime", false],
    ["Not Before: ", "notBefore", false],
  ];
  for (const [label, name, isNeeded] of LABELS) {
    const line = lines[next];
    if (line?.startsWith(label)) {
      found[name] = line.slice(label.length);
      next += 1;
    } else if (isNeeded) return undefined;
  }
  return found;
}

t.test("whatever is inserted into a message, each field is read from its own line", async (t) => {
  const bits = fc.oneof(
    fc.constantFrom(
      "\n",
      "\nURI: https://evil.example/",
      "\nNonce: evilevil",
      "\nChain ID: 1",
      "\n\n",
      "evil.example wants you to sign in with your Ethereum account:\n",
      "0",
      "Z",
      " ",
      "\r",
      "\u2028",
    ),
    fc.string({ maxLength: 3 }),
  );
  let read = 0;
  fc.assert(
    fc.property(fields, bits, fc.nat(), fc.nat({ max: 3 }), (wanted, bit, place, cut) => {
      const message = createSiweMessage(wanted as Parameters<typeof createSiweMessage>[0]);
      const index = place % message.length;
      const altered = message.slice(0, index) + bit + message.slice(index + cut);
      const found = parseSiwe(altered);
      if (!found) return true;
      read += 1;
      const lines = linesOf(altered);
      return (
        lines !== undefined &&
        lines.domain === found.domain &&
        lines.scheme === found.scheme &&
        lines.address === found.address &&
        lines.uri === found.uri &&
        lines.version === found.version &&
        lines.chainId === String(found.chainId) &&
        lines.nonce === found.nonce &&
        new Date(lines.issuedAt ?? "").getTime() === found.issuedAt.getTime() &&
        (lines.expirationTime === undefined) === (found.expirationTime === undefined)
      );
    }),
    { numRuns: 1_000 },
  );
  t.ok(read > 60, `${read} could still be read`);
});

t.test("a site's challenge is signed only for that site, for minutes", async (t) => {
  const url = new URL("https://api.example.com/data?x=1");
  const networks = NETWORKS.filter(({ chainId }) => chainId === 84532);
  const iso = (min: number, max: number) =>
    fc.integer({ min, max }).map((seconds) => at(seconds).toISOString());
  const info = fc.record(
    {
      domain: fc.constantFrom("api.example.com", "api.example.com", "example.com"),
      uri: fc.constantFrom(url.href, "https://api.example.com/", "https://evil.example/data"),
      version: fc.constantFrom("1", "1", "1", 1, "2"),
      nonce: fc.oneof(fc.stringMatching(/^[A-Za-z0-9]{8,16}$/), fc.string()),
      issuedAt: fc.oneof(
        { weight: 4, arbitrary: iso(-330, 330) },
        fc.constantFrom("now", "", 5, null),
      ),
      expirationTime: fc.oneof(
        { weight: 5, arbitrary: iso(-100, 900) },
        fc.constantFrom<unknown>("later", 5),
      ),
      notBefore: iso(-900, 100),
      statement: fc.oneof(fc.constant("Sign in"), fc.string()),
    },
    { requiredKeys: ["domain", "uri", "version", "nonce", "issuedAt"] },
  );
  const chain = often("eip155:84532", "eip155:1");
  let read = 0;
  fc.assert(
    fc.property(info, chain, (info, chainId) => {
      const challenge = { info, supportedChains: [{ chainId, type: "eip191" }] };
      const facts = readChallenge({ url, challenge, networks }, NOW);
      if (!facts) return true;
      read += 1;
      const ends = Date.parse(facts.expirationTime ?? "");
      return (
        facts.domain === url.host &&
        facts.uri === url.href &&
        facts.chainId === "eip155:84532" &&
        info.domain === url.host &&
        !info.uri.includes("evil") &&
        chainId === facts.chainId &&
        /^[A-Za-z0-9]{8,128}$/.test(facts.nonce) &&
        ends > NOW.getTime() &&
        ends <= at(300).getTime() &&
        Math.abs(Date.parse(facts.issuedAt) - NOW.getTime()) <= 300_000 &&
        (facts.statement === undefined || /^[\x20-\x7e]{1,200}$/.test(facts.statement))
      );
    }),
    { numRuns: 1_500 },
  );
  t.ok(read > 20, `${read} would be signed`);
});

const number = fc.bigInt({ min: 0n, max: 2n ** 256n - 1n });

/** A valid order of each kind, without lists. */
const orderOf = (kind: OrderKind): fc.Arbitrary<Record<string, unknown>> =>
  fc.record(
    Object.fromEntries(
      (typesOf(kind, {})[kind] ?? []).map(({ name, type }) => [
        name,
        type === "string"
          ? fc.string({ maxLength: 6 })
          : type === "uint256"
            ? number.map(String)
            : type === "address"
              ? hex(20)
              : type === "bytes32"
                ? hex(32)
                : fc.constant([]),
      ]),
    ),
  );

t.test("an order has one spelling, and an invalid member makes it no order", async () => {
  const kinds = ORDER_KINDS;
  const wrong: Record<string, readonly unknown[]> = {
    uint256: ["", "-1", "01", "1.0", "0x1", "1e3", String(2n ** 256n), undefined, null, " 1"],
    address: ["", "0x", `0x${"1".repeat(39)}`, `0x${"g".repeat(40)}`, undefined, "nobody"],
    bytes32: ["", "0x", `0x${"1".repeat(63)}`, `0x${"1".repeat(66)}`, undefined],
    string: [undefined],
  };
  const any = fc.constantFrom(...kinds).chain((kind) => fc.tuple(fc.constant(kind), orderOf(kind)));
  fc.assert(
    fc.property(any, fc.nat(), fc.nat(), ([kind, wire], place, choice) => {
      const read = readOrder(kind, wire as unknown as Orders[OrderKind]);
      if (!read) return false;
      const again = readOrder(kind, read);
      const loud = Object.fromEntries(
        Object.entries(wire).map(([name, value]) => [
          name,
          typesOf(kind, {})[kind]?.find((field) => field.name === name)?.type === "address"
            ? String(value).toUpperCase().replace("0X", "0x")
            : value,
        ]),
      );
      const other = readOrder(kind, loud as unknown as Orders[OrderKind]);
      if (JSON.stringify(again) !== JSON.stringify(read)) return false;
      if (
        !other ||
        orderDigest(kind, other, 1, REQUESTED_FORM) !== orderDigest(kind, read, 1, REQUESTED_FORM)
      )
        return false;
      if (JSON.stringify(other) !== JSON.stringify(read)) return false;
      const fields = (typesOf(kind, {})[kind] ?? []).filter(({ type }) => type in wrong);
      const field = fields[place % fields.length];
      const bad = field && wrong[field.type];
      if (!field || !bad) return false;
      const altered = { ...wire, [field.name]: bad[choice % bad.length] };
      return readOrder(kind, altered as unknown as Orders[OrderKind]) === undefined;
    }),
    { numRuns: 200 },
  );
});

t.test("an order contains the requested facts, and reads back as them", async () => {
  const text = fc.string({ maxLength: 8 });
  const limit = fc.option(fc.bigInt({ min: 0n, max: 2n ** 256n - 2n }));
  const facts = fc.record({
    agentId: text,
    label: text,
    site: text,
    walletAddress: hex(20),
    payee: hex(20),
    asset: hex(20),
    maxAmountAtomic: number,
    approvalId: text,
    expiresAtSeconds: limit,
    nonce: hex(32),
    deadlineSeconds: number,
  });
  const lower = (address: string) => address.toLowerCase() as Address;
  fc.assert(
    fc.property(facts, (facts) => {
      const key = readOrder("IssueKey", keyOrder(facts));
      const approval = readOrder("ApprovePayment", approvalOrder(facts));
      return (
        key !== undefined &&
        approval !== undefined &&
        key.agent === facts.agentId &&
        key.label === facts.label &&
        lower(key.wallet) === facts.walletAddress &&
        readOptional(key.expiresAt) === facts.expiresAtSeconds &&
        key.nonce === facts.nonce &&
        BigInt(key.deadline) === facts.deadlineSeconds &&
        approval.agent === facts.agentId &&
        lower(approval.payee) === facts.payee &&
        lower(approval.asset) === facts.asset &&
        BigInt(approval.maxAmount) === facts.maxAmountAtomic &&
        approval.site === facts.site &&
        approval.approvalId === facts.approvalId &&
        approval.nonce === facts.nonce
      );
    }),
    { numRuns: 400 },
  );
});

t.test("a Permit2 nonce is stored as a word, and is one bit of one word on chain", async () => {
  fc.assert(
    fc.property(number, number, (nonce, word) => {
      const stored = storedNonce(nonce);
      const ref = { asset: "0x", from: "0x", nonce: stored };
      const data = `0x${word.toString(16).padStart(64, "0")}` as const;
      const digits = word.toString(2).padStart(256, "0");
      return (
        /^permit2:0x[0-9a-f]{64}$/.test(stored) &&
        nonceOf(ref) === nonce &&
        isEnded(ref, { success: true, data }) === (digits[255 - Number(nonce % 256n)] === "1") &&
        isEnded(ref, { success: false, data }) === undefined &&
        isEnded(ref, { success: true, data: data.slice(0, -1) as Hex }) === undefined
      );
    }),
    { numRuns: 1_500 },
  );
});
