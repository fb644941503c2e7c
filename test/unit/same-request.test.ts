// Goal: for idempotency, one request sent twice is the same however its JSON is laid out, and two that differ in any value are different.
import * as fc from "fast-check";
import t from "tap";
import { ExactJson, parseExact } from "../../server/core/exact-json.ts";
import {
  canonicalJson,
  hashBody,
  readIdempotencyKey,
} from "../../server/plugins/guardrails/types.ts";

const json = fc.jsonValue({ maxDepth: 3 });
const isSame = (one: Uint8Array, other: Uint8Array): boolean => Buffer.compare(one, other) === 0;

/** The same value with the members of every object in reverse order. */
function turned(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(turned);
  if (typeof value !== "object" || value === null) return value;
  const result: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  for (const [name, member] of Object.entries(value).reverse()) result[name] = turned(member);
  return result;
}

/** Deep JSON equality, as a reference. */
function equal(one: unknown, other: unknown): boolean {
  if (typeof one !== "object" || one === null || typeof other !== "object" || other === null)
    return one === other || (one === 0 && other === 0);
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const [left, right] = [Object.entries(one), new Map(Object.entries(other))];
  return (
    left.length === right.size &&
    left.every(([name, member]) => right.has(name) && equal(member, right.get(name)))
  );
}

t.test("member order, white space and undefined members make no difference", async () => {
  fc.assert(
    fc.property(json, (value) => {
      const spaced: unknown = JSON.parse(JSON.stringify(value, null, 3));
      const hash = hashBody("/spend", value);
      return (
        isSame(hash, hashBody("/spend", turned(value))) &&
        isSame(hash, hashBody("/spend", spaced)) &&
        isSame(hashBody("/a", { a: value, b: undefined }), hashBody("/a", { a: value }))
      );
    }),
    { numRuns: 500 },
  );
});

t.test("any other value or route is another request", async (t) => {
  let different = 0;
  const small = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 2 },
      fc.constantFrom<unknown>(
        null,
        true,
        0,
        1,
        "",
        "0",
        "1",
        "null",
        "{}",
        "[]",
        'a"b',
        "a\\",
        -0,
      ),
      fc.array(tie("value"), { maxLength: 2 }),
      fc.dictionary(fc.constantFrom("a", "b", 'a"', "__proto__"), tie("value"), { maxKeys: 2 }),
    ),
  })).value;
  fc.assert(
    fc.property(small, small, (one, other) => {
      const isEqual = equal(one, other);
      if (!isEqual) different += 1;
      return (
        isSame(hashBody("/spend", one), hashBody("/spend", other)) === isEqual &&
        !isSame(hashBody("/spend", one), hashBody("/fetch", one))
      );
    }),
    { numRuns: 2_000 },
  );
  t.ok(different > 500, `${different} pairs differed`);
});

t.test("canonical JSON is JSON of the same value, and is stable", async () => {
  fc.assert(
    fc.property(json, (value) => {
      const text = canonicalJson(value);
      const again: unknown = JSON.parse(text);
      return equal(again, JSON.parse(JSON.stringify(value))) && canonicalJson(again) === text;
    }),
    { numRuns: 1_000 },
  );
});

t.test("numbers that are equal as a double are distinguished", async () => {
  fc.assert(
    fc.property(
      fc.bigInt({ min: 2n ** 53n, max: 2n ** 80n }),
      fc.integer({ min: 1, max: 9 }),
      (number, more) => {
        const read = (value: bigint) => hashBody("/a", parseExact(`{"amount":${value}}`));
        return (
          !isSame(read(number), read(number + BigInt(more))) &&
          isSame(read(number), read(number)) &&
          canonicalJson(new ExactJson(String(number))) === String(number)
        );
      },
    ),
    { numRuns: 1_000 },
  );
});

t.test("a key is 1 to 255 visible characters, with spaces only inside", async () => {
  const near = fc
    .array(fc.constantFrom("a", "~", "!", " ", "\t", "\n", "é", "\u007f", "\u0000", "-"), {
      maxLength: 6,
    })
    .map((parts) => parts.join(""));
  const long = fc.integer({ min: 250, max: 260 }).map((length) => "k".repeat(length));
  fc.assert(
    fc.property(fc.oneof(near, long, fc.string()), (text) => {
      const codes = Array.from(text, (one) => one.codePointAt(0) ?? 0);
      const isFit =
        codes.length >= 1 &&
        codes.length <= 255 &&
        codes.every((code) => code >= 0x20 && code <= 0x7e) &&
        text.trim() === text;
      try {
        return readIdempotencyKey(text) === text && isFit;
      } catch (error) {
        return !isFit && (error as { code?: string }).code === "idempotency_key_invalid";
      }
    }),
    { numRuns: 2_000 },
  );
});

t.test("the bytes of a request are those of earlier releases", async (t) => {
  t.equal(
    canonicalJson({ b: [1, null], a: { d: "x", c: true } }),
    '{"a":{"c":true,"d":"x"},"b":[1,null]}',
  );
});

t.test("a request without a key, or with several", async (t) => {
  t.equal(readIdempotencyKey(undefined), undefined);
  t.throws(() => readIdempotencyKey(["a"]), { code: "idempotency_key_invalid" });
});
