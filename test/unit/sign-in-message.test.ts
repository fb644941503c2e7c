// Goal: a site gets only the wallet's statement that it paid there: not for another site, not for a payment, and not for long.
import {
  createSIWxMessage,
  verifySIWxSignature,
  type SIWxPayload,
} from "@x402/extensions/sign-in-with-x";
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { sign } from "../../server/core/signatures.ts";
import { NETWORKS } from "../../server/core/networks.ts";
import { readChallenge, signInOf } from "../../server/plugins/custody/sign-in.ts";

const NOW = new Date("2026-05-01T12:00:00.000Z");
const REQUESTED_URL = new URL("https://api.example.com/data?x=1");
const networks = NETWORKS.filter(({ chainId }) => chainId === 84532);
const info = {
  domain: "api.example.com",
  uri: "https://api.example.com/data",
  version: "1",
  nonce: "0123456789abcdef",
  issuedAt: NOW.toISOString(),
};
const supportedChains = [
  { chainId: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", type: "ed25519" },
  { chainId: "eip155:1", type: "eip191" },
  { chainId: "eip155:84532", type: "eip191" },
];
const read = (over: object = {}, more: object = {}) =>
  readChallenge(
    {
      url: REQUESTED_URL,
      challenge: { info: { ...info, ...over }, supportedChains, ...more },
      networks,
    },
    NOW,
  );

t.test("the message is built from our own facts, and the stock verifier accepts it", async (t) => {
  const facts = read({ statement: "Sign in", resources: ["https://evil.example"], requestId: "x" });
  t.same(facts, {
    domain: "api.example.com",
    uri: REQUESTED_URL.href,
    version: "1",
    chainId: "eip155:84532",
    type: "eip191",
    nonce: info.nonce,
    issuedAt: info.issuedAt,
    expirationTime: "2026-05-01T12:05:00.000Z",
    statement: "Sign in",
  });
  const privateKey = generatePrivateKey();
  const { address } = privateKeyToAccount(privateKey);
  const { hash, withSignature } = signInOf(facts as NonNullable<typeof facts>, address);
  const bytes = (hex: string): Buffer => Buffer.from(hex.slice(2), "hex");
  const payload: SIWxPayload = withSignature(sign(bytes(hash), bytes(privateKey)));
  t.match(await verifySIWxSignature(payload), { isValid: true, payer: address });
  t.match(
    createSIWxMessage({ ...payload, type: "eip191" }, address),
    /^api\.example\.com wants you to sign in with your Ethereum account:/,
  );
});

t.test("it expires soon, whatever the site requests", async (t) => {
  t.equal(
    read({ expirationTime: "2030-01-01T00:00:00.000Z" })?.expirationTime,
    "2026-05-01T12:05:00.000Z",
  );
  t.equal(
    read({ expirationTime: "2026-05-01T12:01:00.000Z" })?.expirationTime,
    "2026-05-01T12:01:00.000Z",
  );
});

t.test("any other challenge is refused", async (t) => {
  const cases: [string, object, object?][] = [
    ["another domain", { domain: "evil.example" }],
    ["another port", { domain: "api.example.com:444" }],
    ["another origin", { uri: "https://evil.example/data" }],
    ["another scheme", { uri: "http://api.example.com/data" }],
    ["no address", { uri: "nonsense" }],
    ["a nonce that is a sentence", { nonce: "pay me\n\n0x00" }],
    ["a short nonce", { nonce: "1" }],
    ["a long nonce", { nonce: "a".repeat(129) }],
    ["no nonce", { nonce: undefined }],
    ["a statement of two lines", { statement: "one\nURI: https://evil.example" }],
    ["a hidden statement", { statement: "a\u202eb" }],
    ["a novel", { statement: "x".repeat(201) }],
    ["an old challenge", { issuedAt: "2026-05-01T11:50:00.000Z" }],
    ["one of tomorrow", { issuedAt: "2026-05-02T12:00:00.000Z" }],
    ["no time", { issuedAt: "now" }],
    ["over", { expirationTime: "2026-05-01T11:59:00.000Z" }],
    ["not yet", { notBefore: "2026-05-01T12:01:00.000Z" }],
    ["another version", { version: "2" }],
    [
      "a chain that is not supported",
      {},
      { supportedChains: [{ chainId: "eip155:1", type: "eip191" }] },
    ],
    ["another curve", {}, { supportedChains: [{ chainId: "eip155:84532", type: "ed25519" }] }],
    ["no chains", {}, { supportedChains: undefined }],
    ["no info", {}, { info: "x" }],
  ];
  for (const [label, over, more] of cases) t.equal(read(over, more), undefined, label);
  t.equal(readChallenge({ url: REQUESTED_URL, challenge: null, networks }, NOW), undefined);
});

t.test("its times are exact", async (t) => {
  const at = (seconds: number) => new Date(NOW.getTime() + seconds * 1_000).toISOString();
  const cases: [string, object, boolean][] = [
    ["issued five minutes ago", { issuedAt: at(-300) }, true],
    ["issued longer ago", { issuedAt: at(-300.001) }, false],
    ["issued five minutes ahead", { issuedAt: at(300) }, true],
    ["issued further ahead", { issuedAt: at(300.001) }, false],
    ["issued at no time", { issuedAt: "2026-05-32T12:00:00.000Z" }, false],
    ["issued in other words", { issuedAt: "1 May 2026 12:00 UTC" }, false],
    ["issued as a number", { issuedAt: NOW.getTime() }, false],
    ["valid from now", { notBefore: at(0) }, true],
    ["valid from later", { notBefore: at(0.001) }, false],
    ["valid until now", { expirationTime: at(0) }, false],
    ["valid until later", { expirationTime: at(0.001) }, true],
    ["valid until no time", { expirationTime: "never" }, false],
    ["a statement that is no text", { statement: 12_345 }, false],
  ];
  for (const [what, over, isAccepted] of cases) t.equal(read(over) !== undefined, isAccepted, what);
  t.notOk("statement" in (read() ?? {}));
  const far = Array.from({ length: 64 }, () => ({ chainId: "eip155:1", type: "eip191" }));
  t.equal(read({}, { supportedChains: [...far, ...supportedChains] }), undefined, "a long list");
  t.ok(read({}, { supportedChains: [...far.slice(1), supportedChains[2]] }));
});
