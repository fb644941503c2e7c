// Goal: the official Python client connects by OAuth, pays, and renews its tokens.
// Tier: full (needs other languages or their package registries).
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import t from "tap";
import { agentWorld } from "../agent-tools/world.ts";
import { allow, tryRequestConsent } from "../helpers/oauth.ts";
import { pythonWith } from "../helpers/python.ts";

const SCRIPT = fileURLToPath(new URL("../../test/oauth/python-client.py", import.meta.url));

t.test("the official Python client", async (t) => {
  const python = await pythonWith(["mcp==2.3.0"], (clean) => t.teardown(clean));
  if ("missing" in python) {
    t.pass("the official Python client", { skip: python.missing });
    return;
  }
  const world = await agentWorld(t);
  const child = spawn(python.python, [SCRIPT, world.baseUrl, world.demoUrl]);
  t.teardown(() => child.kill());
  let errors = "";
  child.stderr.on("data", (part: Buffer) => (errors += part.toString()));
  const results: Record<string, unknown>[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    const what = JSON.parse(line) as Record<string, unknown>;
    const authorizeUrl = what["authorize"];
    if (typeof authorizeUrl !== "string") {
      results.push(what);
      continue;
    }
    // Acts as the consent page, and as the owner who signs.
    const parameters = Object.fromEntries(new URL(authorizeUrl).searchParams);
    const consent = await tryRequestConsent(world, world.owner, parameters);
    const { id } = consent.json<{ id: string }>();
    const answer = await allow(world, world.owner, id, world.agent.id);
    child.stdin.write(`${answer.json<{ redirectTo: string }>().redirectTo}\n`);
  }
  t.same(
    results,
    [
      { paid: true, amount: "0.001" },
      { name: "Test agent", renewed: true },
    ],
    errors,
  );
});
