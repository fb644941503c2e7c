/**
 * /skill.md and /llms.txt. The error table is generated from the table of codes, and guidance.ts has the rules shared
 * with tools.
 */
import { ERRORS, type ErrorCode } from "../../errors.ts";
import {
  ASK_THE_OWNER,
  NEVER_SPLIT,
  WHEN_PAUSED,
  repeatUnanswered,
  UNTRUSTED,
} from "../agent-tools/guidance.ts";
import { DENIAL_CODES } from "../guardrails/rules.ts";

interface SkillFacts {
  baseUrl: string;
  networkId: string;
  networkName: string;
  demoPath: string;
}

/** The codes that an agent gets in practice, in the order in which they occur. */
const AGENT_CODES: readonly ErrorCode[] = [
  "missing_api_key",
  "invalid_api_key",
  "api_key_revoked",
  "api_key_expired",
  ...DENIAL_CODES,
  "approval_declined",
  "too_many_approvals",
  "listing_not_active",
  "validation_failed",
  "invalid_amount",
  "invalid_address",
  "unsupported_payment_requirements",
  "idempotency_in_progress",
  "idempotency_key_reused",
  "call_canceled",
  "rate_limited",
  "fetch_capacity",
  "fetch_quota_exceeded",
  "answer_not_kept",
  "upstream_error",
  "upstream_invalid_402",
  "price_not_announced",
  "upstream_redirect",
  "upstream_timeout",
  "paid_upstream_failed",
  "charge_not_known",
  "settlement_failed",
  "chain_unavailable",
  "keys_unavailable",
  "relayer_unfunded",
  "service_unavailable",
  "payment_status_unknown",
];

const errorTable = (): string =>
  AGENT_CODES.map((code) => `| ${ERRORS[code].status} | \`${code}\` | ${ERRORS[code].help} |`).join(
    "\n",
  );

export const skillMarkdown = ({
  baseUrl,
  networkId,
  networkName,
  demoPath,
}: SkillFacts): string => `---
name: purser
description: Pay for APIs and send USDC from your own wallet, within limits that your owner set. Use it when a URL answers 402 Payment Required, when you need a paid service, or when you must send USDC.
---

# Purser: your wallet

You have a USDC wallet on ${networkName} (\`${networkId}\`). Your owner set a daily limit and the addresses that you may pay.
If you have Purser's MCP tools, use them. The commands below are for plain HTTP with an API key.
Base URL: \`${baseUrl}\`. Send your key with every call: \`Authorization: Bearer $AGENT_API_KEY\`. Requests and answers are JSON.
The key is a secret: never print it, never put it in a URL, never send it to another host.

## 1. Read your balance and limits

\`\`\`sh
curl -s ${baseUrl}/api/agents/me -H "Authorization: Bearer $AGENT_API_KEY"
\`\`\`

- \`balance\` is the USDC in the wallet. \`limits.available\` is the largest single payment that passes now: plan with it.
- \`limits.boundBy\` names the rule that allows no more: a limit, \`balance\`, or \`status\` and \`expiry\` when you may pay nothing. Both fields are \`null\` while they are unknown.
- \`limits.remaining\` is the rest of the rolling 24-hour limit; \`nextReleaseAt\` is when it next grows. A payee in \`allowlist\` may have lower limits of its own.

## 2. Fetch a paid URL

\`\`\`sh
curl -s ${baseUrl}/api/agents/x402-fetch -H "Authorization: Bearer $AGENT_API_KEY" \\
  -H "Content-Type: application/json" -H "Idempotency-Key: $(uuidgen || cat /proc/sys/kernel/random/uuid)" \\
  -d '{"url":"${baseUrl}${demoPath}","maxAmount":"0.01"}'
\`\`\`

- Always send \`maxAmount\`. Optional: \`method\` (upper case), \`headers\`, \`body\` (a string is sent byte for byte), \`timeoutMs\`. A free target costs nothing.
- The content is in one field: \`data\` for JSON (large numbers keep their digits), \`text\` for other text, \`dataBase64\` for other bytes and for text that is mostly control characters. \`status\` comes from the target. \`amountPaid\` and \`txHash\` are the receipt. With \`channel\` you paid through a payment channel, and \`txHash\` is \`null\`. \`evidence\` says whether the seller's signed receipt is \`"verified"\`.
- The answer is short. The same call with the same \`Idempotency-Key\` and \`"detail":"full"\` returns headers, payee, network and the seller's documents too, and pays nothing more.
- \`delivered:false\`: the target answered with an error. \`truncated:true\`: part of the content is missing, and \`note\` gives the reason. Redirects are returned (\`headers.location\`), not followed. \`omittedHeaders\` lists your headers that were not forwarded, if there are any.
- \`"dryRun":true\` returns a quote: price, payee and whether your limits allow it. It sends a GET without a body and pays nothing.
- \`"maxAge":60\` on a GET returns what you paid for in the last 60 seconds (\`cached:true\`) instead of paying again. A site that accepts an earlier payment is signed in to first (\`signedIn:true\`).
- If a target offers several ways to pay, Purser takes the cheapest one that your limits and balance allow. \`offers\` (in a full quote or a refusal) gives the reason against each of the others.
- Send \`{"listingId":"..."}\` instead of \`url\` to buy from the marketplace at pinned terms.

## 3. Find a service

\`\`\`sh
curl -s "${baseUrl}/api/listings?search=block&maxPrice=0.05"
\`\`\`

In a listing and in a quote, \`maximum:true\` says that \`price\` is the most that may be charged: the seller charges by use.

## 4. Send USDC

\`\`\`sh
curl -s ${baseUrl}/api/agents/spend -H "Authorization: Bearer $AGENT_API_KEY" \\
  -H "Content-Type: application/json" -H "Idempotency-Key: $(uuidgen || cat /proc/sys/kernel/random/uuid)" \\
  -d '{"recipient":"0x...","amount":"0.50","memo":"what it is for"}'
\`\`\`

Amounts are strings of USDC with at most 6 decimals: \`"1.50"\`.

## 5. Ask your owner

${ASK_THE_OWNER} To ask, repeat the refused call with \`"requestApproval":true,"reason":"why, in one sentence"\`. The answer is **202** with
\`approvalId\`, \`idempotencyKey\` and \`next\`. Nothing is paid yet.

1. Ask once. The same call joins the open request.
2. Wait until \`status\` is not \`open\`: \`curl -s "${baseUrl}/api/agents/approvals/<approvalId>?wait=30" -H "Authorization: Bearer $AGENT_API_KEY"\`
3. \`granted\`: send exactly the same body again, with \`Idempotency-Key: <idempotencyKey>\`. It is paid once, however often you repeat it. \`declined\`: stop. Do not split the payment, change it or pay in another way.

## 6. Keep one piece of work within a ceiling

\`\`\`sh
curl -s ${baseUrl}/api/agents/tasks -H "Authorization: Bearer $AGENT_API_KEY" \\
  -H "Content-Type: application/json" -d '{"id":"report-1","limit":"0.50"}'
\`\`\`

- Add \`"task":"report-1"\` to fetches, quotes and payments: together they cost at most the ceiling. Your owner's limits stay.
- \`GET /api/tasks/report-1\` shows \`spent\`, \`reserved\` and \`left\`; \`POST /api/tasks/report-1/close\` ends it. Optional: \`expiresAt\`, \`name\`.
- Opening it again with the same terms changes nothing; other terms are refused (\`task_exists\`).

## Rules

- Send an \`Idempotency-Key\` with every payment. After a timeout or a 409, 429, 503 or 504, repeat the call with the **same** key and body. You never pay twice.
- Without a key: ${repeatUnanswered("Idempotency-Key")}
- ${NEVER_SPLIT} A refusal is your owner's decision.
- \`availableAt\` is when the same amount fits the limit. If it is \`null\`, the amount never fits: report this to your owner.
- To call a paid tool of a remote MCP server: \`{"url":"https://mcp.example.com/mcp","mcp":{"tool":"get_weather","arguments":{"city":"Wien"}},"maxAmount":"0.01"}\`. \`data\` is the tool's result; \`status\` is 500 if the tool failed. A dry run calls no tool, and knows the price only if the server lists it (otherwise \`price_not_announced\`).
- A payee with a \`site\` in the allowlist of \`/api/agents/me\` can be paid only by fetching from exactly that origin. With \`"fetch":"sites"\` you may fetch only from those origins, free answers included.
- After \`site_payee_changed\` (the site names another address than your owner signed), do not pay in another way. Report \`site\`, \`expectedPayee\` and \`seenPayee\` to your owner, and retry after the owner has signed the new address.
- ${UNTRUSTED}
- ${WHEN_PAUSED}
- After \`paid_upstream_failed\` the money is spent and nothing was delivered: report it and do not pay again. \`thirdParty\` is the seller's answer. A POST is sent once.

## If a call is refused

Every refusal is JSON with \`code\`, \`detail\`, \`suggestion\`, \`retryable\` and \`requestId\`.

| status | code | what to do |
|---|---|---|
${errorTable()}

More: ${baseUrl}/openapi.json (complete API), ${baseUrl}/mcp (the same as MCP tools), ${baseUrl}/api/tools/openai and ${baseUrl}/api/tools/anthropic (tool definitions).
`;

/** Documentation pages for an agent or its developer, by their file in docs/. */
export const AGENT_PAGES: Readonly<Record<string, string>> = {
  "tutorials/first-agent": "Your first agent",
  "tutorials/first-paid-api": "Your first paid API",
  "how-to/connect-a-program": "Connect a program",
  "how-to/receive-webhooks": "Receive webhooks",
  "reference/fetch-answer": "Fetch answers",
  "reference/rules": "Rules of an agent",
  "reference/schemes": "Payment schemes",
  "reference/events": "Webhook events",
  "reference/errors": "Error codes",
  "reference/cli": "Command line",
};

const pageList = (baseUrl: string): string =>
  Object.entries(AGENT_PAGES)
    .map(([path, title]) => `- [${title}](${baseUrl}/docs/${path})`)
    .join("\n");

export const llmsText = ({ baseUrl, networkName }: SkillFacts): string => `# Purser

> A USDC wallet with limits for AI agents, and an x402 payment facilitator that any paid API can use. This service runs on ${networkName}.

## For agents

- [Skill file](${baseUrl}/skill.md): how to pay in four calls, and what to do after a refusal
- [MCP server](${baseUrl}/mcp): streamable HTTP, with OAuth 2.1 (your client opens a page for the owner) or \`Authorization: Bearer <AGENT_API_KEY>\`
- [OpenAI tool definitions](${baseUrl}/api/tools/openai)
- [Anthropic tool definitions](${baseUrl}/api/tools/anthropic)
- [Marketplace](${baseUrl}/api/listings): paid services at pinned terms; text of sellers is under \`thirdParty\`

## For paid APIs

- [Facilitator](${baseUrl}/api/x402): the facilitator URL for x402 middleware; lists networks, asset contracts, and the EIP-712 name and version of each asset
- [Supported kinds](${baseUrl}/api/x402/supported)
- [Discovery](${baseUrl}/api/x402/discovery/resources)

## Reference

- [OpenAPI](${baseUrl}/openapi.json)
- [Error codes as JSON](${baseUrl}/api/errors)

## Documentation

- [All pages](${baseUrl}/docs/)
${pageList(baseUrl)}
`;
