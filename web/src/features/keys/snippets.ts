/** Ready-to-run first calls. `key` is the real key or its mask; the caller decides which is shown. */
export interface Snippet {
  id: "curl" | "typescript" | "mcp";
  label: string;
  code: string;
}

export function snippetsFor(baseUrl: string, key: string, demoUrl: string): Snippet[] {
  return [
    {
      id: "curl",
      label: "curl",
      code: `# Who am I, and what may I spend?
curl ${baseUrl}/api/agents/me \\
  -H "Authorization: Bearer ${key}"

# Fetch a paid API; Purser pays if the rules allow it
curl ${baseUrl}/api/agents/x402-fetch \\
  -H "Authorization: Bearer ${key}" \\
  -H "Content-Type: application/json" \\
  -d '{"url": "${demoUrl}"}'`,
    },
    {
      id: "typescript",
      label: "TypeScript",
      code: `const purser = "${baseUrl}";
const headers = {
  authorization: "Bearer ${key}",
  "content-type": "application/json",
};

const answer = await fetch(\`\${purser}/api/agents/x402-fetch\`, {
  method: "POST",
  headers: { ...headers, "idempotency-key": crypto.randomUUID() },
  body: JSON.stringify({ url: "${demoUrl}" }),
});
const result = await answer.json();
if (!answer.ok) throw new Error(\`\${result.code}: \${result.suggestion}\`);
console.log(result.data, "paid", result.amountPaid, "USDC");`,
    },
    {
      id: "mcp",
      label: "MCP",
      code: JSON.stringify(
        {
          mcpServers: {
            purser: {
              type: "http",
              url: `${baseUrl}/mcp`,
              headers: { Authorization: `Bearer ${key}` },
            },
          },
        },
        null,
        2,
      ),
    },
  ];
}

export const envFile = (baseUrl: string, key: string): string =>
  `PURSER_URL=${baseUrl}\nPURSER_API_KEY=${key}\n`;
