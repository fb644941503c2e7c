import type { Config } from "../config.ts";

/** What the person at the terminal needs next. */
export function banner(config: Config): string {
  const [network] = config.networks;
  const chain = `${network.name} (${network.id})${config.local ? ", a local chain" : ""}`;
  const next = config.local
    ? [
        "  Open the web app, choose the demo wallet, create an agent and fund it from the faucet;",
        `  or give an agent these instructions: ${config.publicUrl}/skill.md`,
      ]
    : ["  Sign in with your wallet in the web app, create an agent and fund its address."];
  return [
    "",
    `  Purser runs at ${config.publicUrl}`,
    "",
    `  Web app      ${config.publicUrl}`,
    `  API docs     ${config.publicUrl}/docs`,
    `  Facilitator  ${config.publicUrl}/api/x402`,
    `  MCP          ${config.publicUrl}/mcp`,
    `  Network      ${chain}`,
    ...(config.local ? [`  Chain RPC    ${network.rpcUrls[0] ?? ""}`] : []),
    "",
    ...next,
    ...(config.local ? [`  Data is kept in ${config.dataDir} (npm run reset deletes it).`] : []),
    "",
    "  Ctrl-C stops everything.",
    "",
  ].join("\n");
}
