// Goal: malformed addresses, cursors and sign-in messages are refused, and every valid form is understood.
import { randomBytes } from "node:crypto";
import * as fc from "fast-check";
import t from "tap";
import { getAddress, type Hex } from "viem";
import { parseAddress } from "../../server/core/foreign-text.ts";
import { decodeCursor, encodeCursor, readPage, toPage } from "../../server/core/paging.ts";
import { ownOrigins } from "../../server/plugins/auth/index.ts";
import { checkSiwe, parseSiwe } from "../../server/plugins/owners/sign-in.ts";
import { createSiweMessage } from "viem/siwe";

type SiweFields = Parameters<typeof createSiweMessage>[0];

const hex40 = fc
  .uint8Array({ minLength: 20, maxLength: 20 })
  .map((bytes): Hex => `0x${Buffer.from(bytes).toString("hex")}`);

t.test("addresses: every valid spelling is one, a wrong checksum is refused", async (t) => {
  fc.assert(
    fc.property(
      hex40.filter((text) => !/^0x0+$/.test(text)),
      (lower) => {
        const spellings = [lower, getAddress(lower), `0x${lower.slice(2).toUpperCase()}`];
        return spellings.every((text) => {
          const parsed = parseAddress(text);
          return parsed.ok && parsed.address === lower;
        });
      },
    ),
  );
  fc.assert(
    fc.property(hex40, fc.nat({ max: 39 }), (lower, at) => {
      const right = getAddress(lower);
      const index = at + 2;
      const digit = right[index] ?? "";
      const flipped = digit === digit.toLowerCase() ? digit.toUpperCase() : digit.toLowerCase();
      const typo = right.slice(0, index) + flipped + right.slice(index + 1);
      const digits = typo.slice(2);
      const isMixed = digits !== digits.toLowerCase() && digits !== digits.toUpperCase();
      // Digits have no case, and an address in one case has no checksum.
      return typo === right || !isMixed || !parseAddress(typo).ok;
    }),
  );
  for (const bad of [
    "",
    "0x",
    `0x${"1".repeat(39)}`,
    `0x${"1".repeat(41)}`,
    `0X${"1".repeat(40)}`,
    ` 0x${"1".repeat(40)}`,
    `0x${"1".repeat(40)}\n`,
    `0x${"g".repeat(40)}`,
    `0x${"١".repeat(40)}`,
    `0x${"0".repeat(40)}`,
    "vitalik.eth",
    1,
    null,
    undefined,
    ["0x"],
  ])
    t.notOk(parseAddress(bad).ok, JSON.stringify(bad));
});

t.test("cursors: only those that we made are accepted", async (t) => {
  fc.assert(
    fc.property(
      fc.bigInt({ min: 0n, max: 9_999_999_999_999_999n }),
      fc.stringMatching(/^[a-z]{3}_[0-9a-z]{26}$/),
      (createdAtMicros, id) => {
        const place = decodeCursor(encodeCursor({ createdAtMicros, id }));
        return place?.createdAtMicros === createdAtMicros && place.id === id;
      },
    ),
  );
  fc.assert(
    fc.property(fc.string(), (text) => {
      const place = decodeCursor(text);
      if (place === undefined) return true;
      const again = decodeCursor(encodeCursor(place));
      return again?.createdAtMicros === place.createdAtMicros && again.id === place.id;
    }),
  );
  const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
  for (const bad of [
    "",
    "!",
    encode(null),
    encode([]),
    encode(["1"]),
    encode([1, "a"]),
    encode(["-1", "a"]),
    encode(["1e5", "a"]),
    encode(["1", "a b"]),
    encode(["1", "'; --"]),
    encode(["1", "a", "b"]),
    encode(["1".repeat(17), "a"]),
  ]) {
    t.equal(decodeCursor(bad), undefined, bad);
    if (bad !== "") t.throws(() => readPage({ cursor: bad }), { code: "validation_failed" });
  }
  t.same(readPage({}), { limit: 25, after: undefined });
  const rows = Array.from({ length: 3 }, (_, index) => ({
    createdAtMicros: BigInt(index),
    id: `r${index}`,
  }));
  t.equal(toPage(rows, 3, (row) => row.id).nextCursor, null, "the last page has no cursor");
  const page = toPage(rows, 2, (row) => row.id);
  t.same(page.items, ["r0", "r1"]);
  t.same(decodeCursor(page.nextCursor ?? ""), rows[1]);
});

t.test("our own origins include the loopback alias", async (t) => {
  t.same([...ownOrigins("http://localhost:3000").origins].sort(), [
    "http://127.0.0.1:3000",
    "http://localhost:3000",
  ]);
  t.same([...ownOrigins("https://purser.example").origins], ["https://purser.example"]);
  t.same([...ownOrigins("https://purser.example:8443").hosts], ["purser.example:8443"]);
});

t.test("sign-in messages of other libraries are accepted, any mutation is not", async (t) => {
  const own = ownOrigins("https://purser.example");
  const now = new Date("2026-01-01T00:00:00Z");
  const fields = {
    address: getAddress(`0x${randomBytes(20).toString("hex")}`),
    chainId: 5042002,
    domain: "purser.example",
    nonce: "abcdefgh12345678",
    uri: "https://purser.example/sign-in",
    version: "1",
    issuedAt: now,
  } as const;
  const optional = fc.record(
    {
      statement: fc.stringMatching(/^[A-Za-z0-9 .,:'-]{1,60}$/),
      expirationTime: fc.constant(new Date(now.getTime() + 60_000)),
      notBefore: fc.constant(new Date(now.getTime() - 60_000)),
      requestId: fc.stringMatching(/^[a-z0-9]{1,20}$/),
      resources: fc.constant(["https://a.example/b", "ipfs://c"]),
      scheme: fc.constant("https"),
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(optional, (extra) => {
      const parsed = parseSiwe(createSiweMessage({ ...fields, ...extra } as SiweFields));
      return (
        parsed !== undefined &&
        parsed.nonce === fields.nonce &&
        parsed.address === fields.address.toLowerCase() &&
        checkSiwe(parsed, { own, chainIds: [5042002], now }).ok
      );
    }),
  );
  const message = createSiweMessage({ ...fields, statement: "Hello", notBefore: now });
  t.ok(parseSiwe(message));
  const newlines = [...message.matchAll(/\n/g)].map(({ index }) => index);
  for (const at of newlines)
    t.equal(
      parseSiwe(message.slice(0, at) + message.slice(at + 1)),
      undefined,
      `line ${at} joined`,
    );
  for (let at = 0; at <= message.length; at += 1)
    for (const cut of ["\n", "\r\n", "\n\n"])
      t.equal(parseSiwe(message.slice(0, at) + cut + message.slice(at)), undefined, `cut at ${at}`);
});
