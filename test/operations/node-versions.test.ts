// Goal: the compiled service pays under each version of Node that we recommend, without a warning; a start under another
// one says so in one line, and pays as well.
// Tier: full (gets other versions of Node from npm).
import { execFileSync } from "node:child_process";
import t, { type Test } from "tap";
import { nodeAdvice } from "../../server/core/node-version.ts";
import { agentWorld, builtService } from "../helpers/built-service.ts";

const DOWNLOAD_MS = 180_000;

/** The npm package `node` has the program in it. */
function nodeOf(major: number): { path: string; version: string } | { missing: string } {
  try {
    const print = "JSON.stringify({ path: process.execPath, version: process.versions.node })";
    const text = execFileSync("npx", ["-y", `node@${major}`, "-p", print], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
      timeout: DOWNLOAD_MS,
    });
    return JSON.parse(text) as { path: string; version: string };
  } catch {
    return { missing: `npm has no Node ${major} for this machine, or cannot be reached` };
  }
}

/** Returns what the service wrote beside its log. */
async function spend(t: Test, node: string): Promise<string> {
  const world = await agentWorld(t);
  const service = await builtService(t, world, { node });
  const { status, body } = await service.call("/api/agents/spend", {
    method: "POST",
    headers: { ...world.agent.headers, "content-type": "application/json" },
    body: JSON.stringify({ recipient: world.payee, amount: "0.01" }),
  });
  t.equal(status, 200, JSON.stringify(body));
  t.equal(await world.chain.usdcOf(world.payee), 10_000n);
  return service.errors();
}

for (const major of [22, 24]) {
  const found = nodeOf(major);
  t.test(`Node ${major}`, { skip: "missing" in found && found.missing }, async (t) => {
    if ("missing" in found) return;
    t.equal(Number.parseInt(found.version, 10), major);
    const errors = await spend(t, found.path);
    // Test databases run without durability, which is the only thing to warn of.
    const isKnown = /^(Warning: The database.*)?$/;
    const lines = errors.split("\n").filter((line) => !isKnown.test(line));
    t.same(lines, []);
  });
}

t.test("this version of Node", async (t) => {
  const advice = nodeAdvice(process.versions.node);
  const warned = (await spend(t, process.execPath))
    .split("\n")
    .filter((line) => /Node \d/.test(line));
  t.same(warned, advice === undefined ? [] : [`Warning: ${advice}`]);
});
