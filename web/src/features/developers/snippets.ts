/** What the developers' page shows; every line is meant to run as it stands. */
export const agentSteps = (base: string, demoUrl: string) => [
  {
    title: "Know your limits",
    code: `curl ${base}/api/agents/me \\\n  -H "Authorization: Bearer $AGENT_API_KEY"`,
  },
  {
    title: "Ask for the price first",
    code: `curl ${base}/api/agents/x402-fetch \\\n  -H "Authorization: Bearer $AGENT_API_KEY" \\\n  -H "Content-Type: application/json" \\\n  -d '{"url": "${demoUrl}", "dryRun": true}'`,
  },
  {
    title: "Fetch a paid API",
    code: `curl ${base}/api/agents/x402-fetch \\\n  -H "Authorization: Bearer $AGENT_API_KEY" \\\n  -H "Content-Type: application/json" \\\n  -H "Idempotency-Key: $(uuidgen)" \\\n  -d '{"url": "${demoUrl}", "maxAmount": "0.01"}'`,
  },
  {
    title: "Pay an address",
    code: `curl ${base}/api/agents/spend \\\n  -H "Authorization: Bearer $AGENT_API_KEY" \\\n  -H "Content-Type: application/json" \\\n  -H "Idempotency-Key: $(uuidgen)" \\\n  -d '{"recipient": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", "amount": "0.25", "memo": "Report 42"}'`,
  },
];

export const mcpConfig = (base: string): string =>
  JSON.stringify(
    {
      mcpServers: {
        purser: {
          type: "http",
          url: `${base}/mcp`,
          headers: { Authorization: "Bearer ${AGENT_API_KEY}" },
        },
      },
    },
    null,
    2,
  );
