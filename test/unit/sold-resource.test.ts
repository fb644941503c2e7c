// Goal: the facilitator reads what a payment buys from every version of the protocol, without passwords, and never
// fails on what third parties wrote.
import t from "tap";
import { resourceIn } from "../../server/plugins/facilitator/resource.ts";

const v2 = (url: unknown, method?: unknown) => ({
  paymentPayload: {
    resource: { url },
    ...(method !== undefined && { extensions: { bazaar: { info: { input: { method } } } } }),
  },
  paymentRequirements: {},
});

t.test("what was sold", async (t) => {
  const url = "https://api.example/weather?city=Lisbon";
  t.same(resourceIn(v2(url)), { url, method: null });
  t.same(resourceIn(v2(url, "post")), { url, method: "POST" });
  t.same(
    resourceIn({
      paymentPayload: { x402Version: 1 },
      paymentRequirements: { resource: url, outputSchema: { input: { method: "GET" } } },
    }),
    { url, method: "GET" },
  );
  t.same(resourceIn(v2("https://me:secret@api.example/a#key")), {
    url: "https://api.example/a",
    method: null,
  });
  t.same(resourceIn(v2("https://api.example/a\u0000b")), {
    url: "https://api.example/a%00b",
    method: null,
  });
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
  ])
    t.equal(resourceIn(body), undefined, JSON.stringify(body)?.slice(0, 60));
  t.same(resourceIn(v2("mcp://tool/search")), { url: "mcp://tool/search", method: null });
  for (const method of [7, "", "GET\nX", "<b>", "A".repeat(30)])
    t.same(resourceIn(v2(url, method)), { url, method: null });
});
