// Goal: no header from an agent smuggles a credential, another host, a second request or a payment to the target.
import t from "tap";
import { forwardedHeaders } from "../../server/plugins/x402-client/request.ts";

t.test("which headers are forwarded and which are dropped", async (t) => {
  const given = {
    Accept: "text/csv",
    "X-Custom": "tab\tinside is fine",
    "X-Api-Key": "the seller's own key",
    "Content-Type": "application/xml",
    Authorization: "Bearer secret",
    Cookie: "a=b",
    Host: "internal",
    Connection: "close",
    "Keep-Alive": "1",
    "Transfer-Encoding": "chunked",
    "Content-Length": "5",
    TE: "trailers",
    Upgrade: "h2c",
    Expect: "100-continue",
    "Accept-Encoding": "br",
    "Proxy-Authorization": "Basic x",
    "Proxy-Anything": "x",
    "PAYMENT-SIGNATURE": "forged",
    "Payment-Required": "x",
    "X-PAYMENT": "forged",
    "X-Payment-Response": "x",
    Forwarded: "for=1.2.3.4",
    "X-Forwarded-For": "1.2.3.4",
    "X-Forwarded-Host": "internal",
    Via: "x",
    "X-Real-IP": "1.2.3.4",
    "Idempotency-Key": "x",
    "X-Note": "my key is purser_0123456789abcdefghij, keep it",
  };
  t.same(forwardedHeaders(given), {
    ok: true,
    headers: {
      accept: "text/csv",
      "x-custom": "tab\tinside is fine",
      "x-api-key": "the seller's own key",
      "content-type": "application/xml",
    },
    omitted: Object.keys(given).slice(4),
  });
});

t.test("malformed headers are refused", async (t) => {
  const refused: Record<string, string>[] = [
    { "X-A": "one\r\nX-B: two" },
    { "X-A": "one\ntwo" },
    { "X-A": "nul\0" },
    { "X-A": " leading blank" },
    { "X-A": "ünïcode" },
    { "X-A": "x".repeat(5000) },
    { "X A": "name with a blank" },
    { "X:A": "name with a colon" },
    { "": "no name" },
    { "X-A\r\nX-B": "name with a break" },
    { "x-a": "1", "X-A": "2" },
    Object.fromEntries(Array.from({ length: 65 }, (_, index) => [`x-${index}`, "1"])),
  ];
  for (const headers of refused)
    t.equal(forwardedHeaders(headers).ok, false, JSON.stringify(headers).slice(0, 60));
  const odd = JSON.parse('{"__proto__": "x", "constructor": "y"}') as Record<string, string>;
  t.same(Object.entries((forwardedHeaders(odd) as { headers: object }).headers).length, 2);
});
