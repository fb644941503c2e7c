// Goal: only a host with an optional port passes as a Host header, so that a URL built from it has no path, query or user from the caller.
import * as fc from "fast-check";
import t from "tap";
import { readHostName } from "../../packages/paywall/src/host.ts";

const SEED = 4021;
const oneOf = (characters: string) => fc.constantFrom(...characters.split(""));
const label = fc.stringMatching(/^[a-z0-9](?:[a-z0-9-]{0,20}[a-z0-9])?$/);
const domain = fc
  .array(label, { minLength: 0, maxLength: 4 })
  // The last label starts with a letter, so that no URL parser reads the name as an IPv4 address.
  .map((labels) => [...labels, "example"].join("."))
  .filter((name) => !/(^|\.)xn--/.test(name));
const name = fc.oneof(
  domain,
  domain.map((text) => text.toUpperCase()),
  fc.ipV4(),
  fc
    .ipV6()
    .filter((text) => !text.includes("%"))
    .map((text) => `[${text}]`),
);
const port = fc.option(fc.integer({ min: 1, max: 65_535 }), { nil: undefined });
const host = fc.tuple(name, port).map(([n, p]) => ({ name: n, text: p ? `${n}:${p}` : n }));

t.test("every name, IPv4 and bracketed IPv6 address passes, with a port or without", async () => {
  fc.assert(
    fc.property(host, ({ name: expected, text }) => readHostName(text) === expected.toLowerCase()),
    { seed: SEED, numRuns: 1_000 },
  );
});

t.test("an accepted host is the whole authority of its URL, and nothing else", async () => {
  // Text made of the characters that delimit parts of a URL.
  const near = fc
    .array(
      fc.oneof(
        host.map(({ text }) => text),
        oneOf("/?#@:\\%[] .,;&=\t\r\n\0a0-_xé"),
      ),
      {
        maxLength: 6,
      },
    )
    .map((parts) => parts.join(""));
  fc.assert(
    fc.property(fc.oneof(near, fc.string(), fc.string({ unit: "binary" })), (text) => {
      const read = readHostName(text);
      if (read === undefined) return true;
      const url = new URL(`http://${text}/cheap`);
      const isAlone =
        url.pathname === "/cheap" && url.search + url.hash + url.username + url.password === "";
      const isSame = url.port === "" || text.endsWith(`:${url.port}`);
      return isAlone && isSame && (url.hostname === read || read.startsWith("["));
    }),
    { seed: SEED, numRuns: 2_500 },
  );
});

t.test("one forbidden character anywhere in a host is refused", async () => {
  fc.assert(
    fc.property(
      host,
      oneOf("/?#@\\% \t\r\n\0,;&=\u00e9\uff0f"),
      fc.nat(),
      ({ text }, character, place) => {
        const at = place % (text.length + 1);
        return readHostName(text.slice(0, at) + character + text.slice(at)) === undefined;
      },
    ),
    { seed: SEED, numRuns: 1_000 },
  );
});

t.test("a host that a URL parser would read differently is refused", async (t) => {
  for (const text of [
    "",
    ".",
    ":80",
    "shop:",
    "shop:0",
    "shop:080",
    "shop:65536",
    "shop:123456",
    "shop:8o",
    "shop:80:80",
    "shop:4395/dear?q=",
    "user@shop",
    "shop..example",
    ".shop",
    "-shop",
    "shop-",
    "127.1",
    "0x7f.0.0.1",
    "0x7f000001",
    "2130706433",
    "256.1.1.1",
    "1.2.3.4.",
    "::1",
    "[::1",
    "[::1]x",
    "[::g]",
    "[1.2.3.4]",
    "[fe80::1%eth0]",
    `${"a".repeat(64)}.example`,
    `${"a.".repeat(127)}ab`,
  ])
    t.equal(readHostName(text), undefined, text);
  // No punycode: refused by the parser of Node 20 and 22, and left as it is by that of Node 24.
  t.equal(readHostName("xn--a"), URL.canParse("http://xn--a") ? "xn--a" : undefined);
  for (const text of ["localhost", "shop.", "my_service:3000", `${"a.".repeat(126)}a`])
    t.equal(readHostName(text), text.replace(":3000", ""), text);
});
