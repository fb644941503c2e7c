// Goal: a site is one origin in one spelling; lookalikes are other sites, and rules compare origins, not names.
import t from "tap";
import { coverOf, loosens, type Payee, type RulesInForce } from "../../server/core/rules.ts";
import { parseSite, readableSite, siteOf } from "../../server/core/site.ts";

const SITE = "https://api.example.com";
const A = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8";
const B = "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc";

t.test("spellings of one origin are one", async (t) => {
  for (const text of [
    SITE,
    `${SITE}/`,
    "https://API.Example.COM",
    "HTTPS://api.example.com:443",
    "https://api.example.com:0443",
    "https://ａｐｉ.example.com",
  ])
    t.same(parseSite(text), { ok: true, site: SITE }, text);
  t.same(parseSite("http://x.example:80"), { ok: true, site: "http://x.example" });
  t.same(parseSite("http://0x7f.1:8080"), { ok: true, site: "http://127.0.0.1:8080" });
  t.same(parseSite("https://bücher.example"), { ok: true, site: "https://xn--bcher-kva.example" });
});

t.test("a text that is not an origin is refused", async (t) => {
  for (const text of [
    "",
    "api.example.com",
    "https://api.example.com/v1",
    "https://api.example.com?x",
    "https://api.example.com#x",
    "https://user@api.example.com",
    "https://:pw@api.example.com",
    "https://@api.example.com",
    "https:\\\\api.example.com",
    " https://api.example.com",
    "https://api.exa\tmple.com",
    "https://api.example.com.",
    "ftp://api.example.com",
    "file:///etc/passwd",
    "data:text/html,x",
    "blob:https://api.example.com/1",
    "https://api.example.com:99999",
    "https://",
  ])
    t.equal(parseSite(text).ok, false, JSON.stringify(text));
});

t.test("the site of a URL is never taken for another one", async (t) => {
  const at = (text: string) => siteOf(new URL(text));
  t.equal(at("https://API.example.com:443/x?y#z"), SITE);
  for (const other of [
    "http://api.example.com/",
    "https://api.example.com:444/",
    "https://api.example.com./",
    "https://api.example.com.evil.example/",
    "https://api.example.com@evil.example/",
    "https://evil.example/https://api.example.com",
    "https://api.example.com\u0000evil.example/".replace("\u0000", "%2e"),
    "https://аpi.example.com/", // the first letter is Cyrillic
    "https://api.examрle.com/",
    "https://apі.example.com/",
  ])
    t.not(at(other), SITE, other);
});

t.test("an international name is shown as people write it, beside its punycode", async (t) => {
  t.equal(readableSite("https://xn--bcher-kva.example:8443"), "https://bücher.example:8443");
  t.equal(readableSite(siteOf(new URL("https://аpi.example.com/"))), "https://аpi.example.com");
  // The last one is punycode of "a", which is another site's name.
  for (const plain of ["", SITE, "https://xn--.example", "https://xn--a-.example"])
    t.equal(readableSite(plain), null, plain);
});

const payee = (address: string, site: string, over: Partial<Payee> = {}): Payee => ({
  address: address as Payee["address"],
  label: "",
  site,
  dailyLimitAtomic: null,
  perPaymentLimitAtomic: null,
  expiresAtSeconds: null,
  ...over,
});
const rules = (payees: Payee[], over: Partial<RulesInForce> = {}): RulesInForce => ({
  dailyLimitAtomic: 10n,
  weeklyLimitAtomic: null,
  monthlyLimitAtomic: null,
  perPaymentLimitAtomic: null,
  paymentsPerHour: null,
  fetch: "any",
  expiresAtSeconds: null,
  status: "active",
  payees,
  ...over,
});

t.test("which changes of a site's rules loosen", async (t) => {
  const other = "https://other.example";
  const cases: [string, boolean, RulesInForce, RulesInForce][] = [
    ["everywhere to one site", false, rules([payee(A, "")]), rules([payee(A, SITE)])],
    ["one site to everywhere", true, rules([payee(A, SITE)]), rules([payee(A, "")])],
    ["one site to another", true, rules([payee(A, SITE)]), rules([payee(A, other)])],
    ["a second site", true, rules([payee(A, SITE)]), rules([payee(A, SITE), payee(A, other)])],
    [
      "one of two sites is removed",
      false,
      rules([payee(A, SITE), payee(A, other)]),
      rules([payee(A, SITE)]),
    ],
    ["another payee at the site", true, rules([payee(A, SITE)]), rules([payee(B, SITE)])],
    [
      "the tighter entry of a site is removed, the one for everywhere stays",
      true,
      rules([payee(A, ""), payee(A, SITE, { dailyLimitAtomic: 1n })]),
      rules([payee(A, "")]),
    ],
    [
      "a tighter entry for a site beside the one for everywhere",
      false,
      rules([payee(A, "")]),
      rules([payee(A, ""), payee(A, SITE, { dailyLimitAtomic: 1n })]),
    ],
    [
      "a looser one",
      true,
      rules([payee(A, "", { dailyLimitAtomic: 1n })]),
      rules([payee(A, "", { dailyLimitAtomic: 1n }), payee(A, SITE)]),
    ],
    [
      "a confined agent gets one more site to fetch from, free answers included",
      true,
      rules([payee(A, ""), payee(B, SITE)], { fetch: "sites" }),
      rules([payee(A, other), payee(B, SITE)], { fetch: "sites" }),
    ],
    ["confined", false, rules([payee(A, SITE)]), rules([payee(A, SITE)], { fetch: "sites" })],
    [
      "no longer confined",
      true,
      rules([payee(A, SITE)], { fetch: "sites" }),
      rules([payee(A, SITE)]),
    ],
  ];
  for (const [name, expected, from, to] of cases) t.equal(loosens(from, to), expected, name);
});

t.test("which payments a signature covers, by site", async (t) => {
  const cover = coverOf(
    rules([payee(A, ""), payee(A, SITE, { perPaymentLimitAtomic: 1n }), payee(B, SITE)]),
  );
  const at = (to: string, site: string | undefined, valueAtomic = 2n) =>
    cover({ payee: to as Payee["address"], valueAtomic, nowSeconds: 0n, ...(site && { site }) })
      .covered;
  t.equal(at(A, undefined), true);
  t.equal(at(A, "https://other.example"), true);
  t.equal(at(A, SITE), false, "the site's own entry applies there");
  t.equal(at(A, SITE, 1n), true);
  t.equal(at(B, SITE), true);
  for (const site of [undefined, "https://other.example", `${SITE}.`, `${SITE}:444`])
    t.equal(at(B, site), false, String(site));
});
