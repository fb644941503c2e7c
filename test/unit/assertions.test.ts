// Goal: what a browser answers when a passkey has signed becomes one text with exactly its parts, or is refused.
import t from "tap";
import { signatureOfAssertion } from "../../packages/rules/src/assertions.ts";
import { readPasskeySignature } from "../../server/core/passkeys.ts";

const KEY = { x: `0x${"1a".repeat(32)}`, y: `0x${"2b".repeat(32)}` };
const base64Url = (hex: string): string => Buffer.from(hex, "hex").toString("base64url");
const lengthOf = (hex: string): string => (hex.length / 2).toString(16).padStart(2, "0");
const integer = (hex: string, tag = "02"): string => `${tag}${lengthOf(hex)}${hex}`;
const sequence = (body: string, tag = "30"): string => `${tag}${lengthOf(body)}${body}`;
const R = "c1".repeat(32);
const S = "7f".repeat(32);

const read = (der: string, more: Partial<Record<"clientDataJSON" | "authenticatorData", string>>) =>
  signatureOfAssertion(KEY, {
    clientDataJSON: base64Url("fbff00"),
    authenticatorData: base64Url("fefd01ff"),
    signature: base64Url(der),
    ...more,
  });
const numbersIn = (der: string): [string, string] | undefined => {
  const found = readPasskeySignature(read(der, {}) ?? "0x");
  return found && [found.r, found.s];
};

t.test("every part is kept", async (t) => {
  const signature = read(sequence(integer(R) + integer(S)), {});
  t.match(readPasskeySignature(signature ?? ""), {
    ...KEY,
    r: `0x${R}`,
    s: `0x${S}`,
    clientData: Uint8Array.from([0xfb, 0xff, 0]),
    authenticatorData: Uint8Array.from([0xfe, 0xfd, 1, 0xff]),
  });
  t.equal(read(sequence(integer(R) + integer(S)), { clientDataJSON: "" })?.endsWith("01ff"), true);
});

t.test("numbers of other lengths", async (t) => {
  const padded = (hex: string): string => `0x${hex.padStart(64, "0")}`;
  for (const [name, r, s] of [
    ["a zero before each", `00${R}`, `00${S}`],
    ["short ones", "05", "0102"],
    ["zero", "00", "0000"],
  ] as const)
    t.same(
      numbersIn(sequence(integer(r) + integer(s))),
      [padded(r.replace(/^(00)+/, "")), padded(s.replace(/^(00)+/, ""))],
      name,
    );
});

t.test("what is no signature", async (t) => {
  const both = integer(R) + integer(S);
  const wrong: Record<string, string> = {
    nothing: "",
    "another tag": sequence(both, "31"),
    "another length": `30${lengthOf(`${both}00`)}${both}`,
    "a shorter length": `30${lengthOf(both.slice(2))}${both}`,
    "a byte after it": sequence(`${both}00`),
    "one number": sequence(integer(R)),
    "no number": sequence(""),
    "a first number of another kind": sequence(integer(R, "03") + integer(S)),
    "a second number of another kind": sequence(integer(R) + integer(S, "03")),
    "a first number without bytes": sequence(`0200${integer(S)}`),
    "a second number without bytes": sequence(`${integer(R)}0200`),
    "a number that is longer than the rest": sequence(`${integer(R)}0221${S}`),
    "a number of 33 bytes": sequence(integer(`01${R}`) + integer(S)),
    "a second number of 33 bytes": sequence(integer(R) + integer(`01${S}`)),
  };
  for (const [name, der] of Object.entries(wrong)) t.equal(read(der, {}), undefined, name);
});

t.test("what is not base64url", async (t) => {
  const der = sequence(integer(R) + integer(S));
  for (const part of ["clientDataJSON", "authenticatorData"] as const)
    for (const text of ["+w", "/w", "fw==", "f w", "abcde"])
      t.equal(read(der, { [part]: text }), undefined, `${part}: ${text}`);
});
