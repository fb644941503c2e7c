// Goal: the plugin's files match what the agent programs read: complete, of one version, and everything they
// refer to exists and responds.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import t from "tap";
import { agentWorld } from "../agent-tools/world.ts";
import { ROOT } from "./packed.ts";

const PLUGIN = join(ROOT, "plugins", "purser");
const LOCAL_URL = "http://localhost:3000/mcp";
type Json = Record<string, unknown>;
const read = (...path: string[]): Json => JSON.parse(readFileSync(join(...path), "utf8")) as Json;

t.test("the manifests have the members that their schemas require, and no others", async (t) => {
  const { version } = read(ROOT, "packages", "purser", "package.json");
  const named = ["name", "version", "description", "author", "license", "keywords"];
  const manifests: [string, string[]][] = [
    // Clients refuse a plugin with an unknown member.
    ["plugin.json", ["$schema", ...named]],
    [".claude-plugin/plugin.json", named],
    [".codex-plugin/plugin.json", [...named, "skills", "mcpServers", "interface"]],
    ["gemini-extension.json", ["name", "version", "description", "mcpServers"]],
  ];
  for (const [file, members] of manifests) {
    const manifest = read(PLUGIN, file);
    t.same(Object.keys(manifest).sort(), members.toSorted(), file);
    t.match(manifest, { name: "purser", version }, `${file} is of the package's version`);
    for (const path of [manifest["skills"], manifest["mcpServers"]])
      if (typeof path === "string") t.ok(existsSync(join(PLUGIN, path)), path);
  }
  const ours = "https://agent-plugins.org/schemas/1.0.0";
  t.equal(read(PLUGIN, "plugin.json")["$schema"], `${ours}/plugin.schema.json`);
  t.equal(read(PLUGIN, "mcp.json")["$schema"], `${ours}/mcp.schema.json`);
  const [skillHead = ""] =
    /^---\n[\s\S]*?\n---\n/.exec(
      readFileSync(join(PLUGIN, "skills", "purser", "SKILL.md"), "utf8"),
    ) ?? [];
  // The skill is named like its folder, and its front matter may have no other members.
  t.match(skillHead, /^---\nname: purser\ndescription: .{20,1024}\n---\n$/);
});

t.test("the plugin catalogues refer to it", async (t) => {
  const claude = read(ROOT, ".claude-plugin", "marketplace.json");
  const codex = read(ROOT, ".agents", "plugins", "marketplace.json");
  t.match(claude, { name: "purser", owner: { name: String }, plugins: [{ name: "purser" }] });
  t.match(codex, { name: "purser", plugins: [{ name: "purser", source: { source: "local" } }] });
  const [ofClaude] = claude["plugins"] as { source: string }[];
  const [ofCodex] = codex["plugins"] as { source: { path: string } }[];
  for (const path of [ofClaude?.source, ofCodex?.source.path])
    t.ok(existsSync(join(ROOT, path ?? "nowhere", "skills")), path ?? "a path is named");
});

t.test("each manifest names one server, which responds", async (t) => {
  const servers = ["mcp.json", ".mcp.json", "gemini-extension.json"].map((file) => {
    const { mcpServers } = read(PLUGIN, file) as { mcpServers: Record<string, Json> };
    t.same(Object.keys(mcpServers), ["purser"], file);
    return mcpServers["purser"] ?? {};
  });
  t.same(servers, [
    { type: "streamable-http", url: LOCAL_URL },
    { type: "http", url: LOCAL_URL },
    { httpUrl: LOCAL_URL },
  ]);
  const { agent, baseUrl } = await agentWorld(t);
  const url = new URL(LOCAL_URL.replace("http://localhost:3000", baseUrl));
  const headers = { authorization: `Bearer ${agent.apiKey}` };
  const client = new Client({ name: "test", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
  t.teardown(() => client.close());
  t.ok((await client.listTools()).tools.length >= 5);
});
