/**
 * Code examples to copy from the screens; a test runs every line of them. The caller decides whether `key` is
 * the real key, its masked form, or the name of a variable.
 */
import type { NetworkInfo, ServiceInfo } from "./wire.ts";

interface Snippet {
  title: string;
  code: string;
}

const HEADERS = (key: string, ...more: string[]): string =>
  [`Authorization: Bearer ${key}`, ...more].map((header) => ` \\\n  -H "${header}"`).join("");

const JSON_TYPE = "Content-Type: application/json";
const FRESH_KEY = "Idempotency-Key: $(uuidgen)";
const body = (value: unknown): string => ` \\\n  -d '${JSON.stringify(value)}'`;

export const askWithoutPaying = (demoUrl: string): string => `curl -i ${demoUrl}`;

const whoAmI = (base: string, key: string): string => `curl ${base}/api/agents/me${HEADERS(key)}`;

export const fetchPaid = (base: string, key: string, request: Record<string, unknown>): string =>
  `curl ${base}/api/agents/x402-fetch${HEADERS(key, JSON_TYPE)}${body(request)}`;

/** The first steps with an agent, in a useful order. */
export const agentSteps = (base: string, key: string, demoUrl: string): Snippet[] => [
  { title: "Read your limits", code: whoAmI(base, key) },
  { title: "Check the price first", code: fetchPaid(base, key, { url: demoUrl, dryRun: true }) },
  {
    title: "Fetch a paid API",
    code: `curl ${base}/api/agents/x402-fetch${HEADERS(key, JSON_TYPE, FRESH_KEY)}${body({ url: demoUrl, maxAmount: "0.01" })}`,
  },
  {
    title: "Pay an address",
    code: `curl ${base}/api/agents/spend${HEADERS(key, JSON_TYPE, FRESH_KEY)}${body({
      recipient: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
      amount: "0.25",
      memo: "Report 42",
    })}`,
  },
];

export const firstCurls = (base: string, key: string, demoUrl: string): string =>
  `# Read your balance and limits
${whoAmI(base, key)}

# Fetch a paid API; Purser pays if your rules allow it
${fetchPaid(base, key, { url: demoUrl })}`;

export const typescriptCall = (base: string, key: string, demoUrl: string): string =>
  `const answer = await fetch("${base}/api/agents/x402-fetch", {
  method: "POST",
  headers: {
    authorization: "Bearer ${key}",
    "content-type": "application/json",
    "idempotency-key": crypto.randomUUID(),
  },
  body: JSON.stringify({ url: "${demoUrl}" }),
});
const result = await answer.json();
if (!answer.ok) throw new Error(\`\${result.code}: \${result.suggestion}\`);
console.log(result.data, "paid", result.amountPaid, "USDC");`;

export const mcpConfig = (base: string, key: string): string =>
  JSON.stringify(
    {
      mcpServers: {
        purser: { type: "http", url: `${base}/mcp`, headers: { Authorization: `Bearer ${key}` } },
      },
    },
    null,
    2,
  );

export const envFile = (base: string, key: string): string =>
  `PURSER_URL=${base}\nAGENT_API_KEY=${key}\n`;

/**
 * Standard x402 middleware with our URL. The price names the token explicitly, because the middleware's table
 * does not contain every chain.
 */
export const expressSeller = (info: ServiceInfo, network: NetworkInfo): string =>
  `import express from "express";
import { HTTPFacilitatorClient } from "@x402/core/server";
import { registerExactEvmScheme } from "@x402/evm/exact/server";
import { paymentMiddleware, x402ResourceServer } from "@x402/express";

const facilitator = new HTTPFacilitatorClient({ url: "${info.facilitator.url}" });
const server = new x402ResourceServer(facilitator);
registerExactEvmScheme(server);

const app = express();
app.use(
  paymentMiddleware(
    {
      "GET /report": {
        accepts: {
          scheme: "exact",
          network: "${network.id}",
          payTo: process.env.PAY_TO,
          price: {
            amount: "1000", // 0.001 USDC
            asset: "${network.usdc.address}",
            extra: { name: "${network.usdc.name}", version: "${network.usdc.version}" },
          },
        },
      },
    },
    server,
  ),
);
app.get("/report", (_request, response) => response.json({ report: "..." }));
app.listen(process.env.PORT ?? 4021);`;
