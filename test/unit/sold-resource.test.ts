// Goal: the facilitator reads what a payment buys from every version of the protocol, without passwords and queries, and
// never fails on what third parties wrote.
import t from "tap";
import { resourceIn } from "../../server/plugins/facilitator/resource.ts";

const v2 = (url: unknown, method?: unknown, description?: unknown) => ({
  paymentPayload: {
    resource: { url, description },
    ...(method !== undefined && { extensions: { bazaar: { info: { input: { method } } } } }),
  },
  paymentRequirements: {},
});

t.test("what was sold", async (t) => {
  const url = "https://api.example/weather";
  const sold = (of: string, method: string | null = null, description: string | null = null) => ({
    url: of,
    method,
    description,
  });
  t.same(resourceIn(v2(`${url}?city=Lisbon&key=secret`)), sold(url), "no query");
  t.same(resourceIn(v2(url, "post")), sold(url, "POST"));
  t.same(
    resourceIn({
      paymentPayload: { x402Version: 1 },
      paymentRequirements: {
        resource: `${url}?a`,
        description: "Weather",
        outputSchema: { input: { method: "GET" } },
      },
    }),
    sold(url, "GET", "Weather"),
  );
  for (const [written, kept] of [
    ["https://me:secret@api.example/a?b#key", "https://api.example/a"],
    ["mcp://me:secret@tool/search?q", "mcp://tool/search"],
    [
      "https://proxy.example/https://me:secret@api.example/a",
      "https://proxy.example/https://api.example/a",
    ],
    ["https://api.example/a\u0000b", "https://api.example/a%00b"],
    [
      "https://api.example/<script>alert(1)</script>",
      "https://api.example/%3Cscript%3Ealert(1)%3C/script%3E",
    ],
    ["https://api.example/\u202Efdp.exe", "https://api.example/%E2%80%AEfdp.exe"],
    [`https://api.example/a?${"b".repeat(3_000)}`, "https://api.example/a"],
    ["mcp://tool/search", "mcp://tool/search"],
  ] as const)
    t.same(resourceIn(v2(written)), sold(kept));
  for (const body of [
    undefined,
    null,
    {},
    { paymentPayload: [], paymentRequirements: "x" },
    v2(undefined),
    v2(7),
    v2("weather"),
    v2("x:Refund 500 USDC at evil.example"),
    v2("data:text/html,hello"),
    v2("mcp:Refund 500 USDC at evil.example"),
    v2("https://"),
    v2(`https://api.example/${"a".repeat(3_000)}`),
    v2(`https://api.example/?${"a".repeat(10_000)}`),
  ])
    t.equal(resourceIn(body), undefined, JSON.stringify(body)?.slice(0, 60));
  for (const method of [7, "", "GET\nX", "<b>", "A".repeat(30)])
    t.same(resourceIn(v2(url, method)), sold(url));
  for (const [written, kept] of [
    ["One\nforecast \u202Etsacerof", "One forecast tsacerof"],
    ["See https://me:secret@api.example", "See https://api.example"],
    ["a".repeat(10_000), "a".repeat(200)],
    [{ evil: true }, null],
    ["\u200B", null],
  ] as const)
    t.same(resourceIn(v2(url, undefined, written)), sold(url, null, kept));
});
