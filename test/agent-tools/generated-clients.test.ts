// Goal: clients generated from the OpenAPI document by third-party generators compile and pay, in three languages.
// Tier: full (needs other languages or their package registries).
// Limit: 20 minutes.
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import t from "tap";
import { goWith } from "../helpers/go.ts";
import { pythonWith } from "../helpers/python.ts";
import { agentWorld } from "./world.ts";

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, "../..");
const GENERATORS = join(ROOT, "test/generators");

const { app, agent, friend, demoUrl, baseUrl } = await agentWorld(t);
const folder = await mkdtemp(join(GENERATORS, ".made-"));
t.teardown(() => rm(folder, { recursive: true, force: true }));
await writeFile(join(folder, "openapi.json"), (await app.inject("/openapi.json")).body);
const env = {
  PATH: process.env["PATH"],
  HOME: folder,
  AGENT_API_KEY: agent.apiKey,
  BASE_URL: baseUrl,
  DEMO_URL: demoUrl,
  FRIEND: friend,
};

/** Runs a program, and throws its output if it fails. */
async function runOrThrow(
  program: string,
  args: string[],
  { cwd = folder, more = {} }: { cwd?: string; more?: Record<string, string> } = {},
): Promise<{ stdout: string; stderr: string }> {
  try {
    return await run(program, args, { cwd, env: { ...env, ...more }, maxBuffer: 1 << 24 });
  } catch (error) {
    const { stdout = "", stderr = "" } = error as { stdout?: string; stderr?: string };
    throw new Error(`${program} ${args.join(" ")}\n${stdout}${stderr}`.slice(0, 4_000), {
      cause: error,
    });
  }
}

// Before the first test: tap ends the file when something is awaited between two tests.
const python = await pythonWith(["openapi-python-client==0.29.1"], (clean) => t.teardown(clean));
const skip = "missing" in python && python.missing;
const GENERATOR = "github.com/oapi-codegen/oapi-codegen/v2";
const GENERATOR_VERSION = "v2.8.2";
const RUNTIME = "github.com/oapi-codegen/runtime@v1.9.0";
const go = await goWith([`${GENERATOR}@${GENERATOR_VERSION}`, RUNTIME]);
const skipGo = "missing" in go && go.missing;

const TYPESCRIPT = `
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.d.ts";

const { AGENT_API_KEY, BASE_URL = "", DEMO_URL = "", FRIEND = "" } = process.env;
const client = createClient<paths>({
  baseUrl: BASE_URL,
  headers: { authorization: \`Bearer \${AGENT_API_KEY}\` },
});
type Payment = components["schemas"]["PaymentSummary"];

const spend = () =>
  client.POST("/api/agents/spend", {
    params: { header: { "Idempotency-Key": "generated-1" } },
    body: { recipient: FRIEND, amount: "0.25", memo: "from a generated client" },
  });
const paid = await spend();
if (paid.error) throw new Error(paid.error.code);
const again = await spend();
const fetched = await client.POST("/api/agents/x402-fetch", { body: { url: DEMO_URL } });
const refused = await client.POST("/api/agents/spend", { body: { recipient: FRIEND, amount: "1000" } });
const page = await client.GET("/api/agents/me/payments", { params: { query: { limit: 10 } } });
const payments: Payment[] = page.data?.items ?? [];
const amount: string | undefined = "txHash" in paid.data ? paid.data.amount : undefined;
// @ts-expect-error A call without its body is no call.
void (() => client.POST("/api/agents/spend", {}));
console.log(
  JSON.stringify({
    amount,
    replayed: again.response.headers.get("idempotent-replayed"),
    fetched: fetched.data && "amountPaid" in fetched.data ? fetched.data.amountPaid : undefined,
    refused: refused.error?.code,
    kinds: payments.map(({ kind, status }) => \`\${kind} \${status}\`).sort(),
  }),
);
`;

const STRICT = {
  compilerOptions: {
    strict: true,
    exactOptionalPropertyTypes: true,
    noEmit: true,
    allowImportingTsExtensions: true,
    skipLibCheck: true,
    target: "es2023",
    module: "nodenext",
    types: ["node"],
  },
  files: ["client.ts"],
};

t.test("TypeScript: openapi-typescript and openapi-fetch", async (t) => {
  const bin = join(GENERATORS, "node_modules/openapi-typescript/bin/cli.js");
  await runOrThrow(process.execPath, [bin, "openapi.json", "--output", "schema.d.ts"]);
  await writeFile(join(folder, "client.ts"), TYPESCRIPT);
  await writeFile(join(folder, "package.json"), '{"type":"module"}');
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify(STRICT));
  // With both compilers: the newest one, and the older one that most users have.
  for (const compiler of [ROOT, GENERATORS])
    await runOrThrow(process.execPath, [
      join(compiler, "node_modules/typescript/bin/tsc"),
      "-p",
      ".",
    ]);
  const { stdout } = await runOrThrow(process.execPath, ["--import=tsx", "client.ts"]);
  t.match(JSON.parse(stdout), {
    amount: "0.25",
    replayed: "true",
    fetched: "0.001",
    refused: "daily_limit_exceeded",
    kinds: ["spend blocked", "spend settled", "x402 settled"],
  });
});

const PYTHON = `
import json, os
from purser_client import AuthenticatedClient
from purser_client.api.agents import agent_spend, agent_fetch, list_payments
from purser_client.models import SpendRequest, X402FetchRequest, SpendAnswer, X402FetchAnswer, Problem

client = AuthenticatedClient(base_url=os.environ["BASE_URL"], token=os.environ["AGENT_API_KEY"], timeout=60)
friend = os.environ["FRIEND"]
body = SpendRequest(recipient=friend, amount="0.5", memo="from a generated client")
paid = agent_spend.sync_detailed(client=client, body=body, idempotency_key="generated-2")
assert isinstance(paid.parsed, SpendAnswer), paid
again = agent_spend.sync_detailed(client=client, body=body, idempotency_key="generated-2")
fetched = agent_fetch.sync(client=client, body=X402FetchRequest(url=os.environ["DEMO_URL"]))
assert isinstance(fetched, X402FetchAnswer), fetched
refused = agent_spend.sync(client=client, body=SpendRequest(recipient=friend, amount="1000"))
assert isinstance(refused, Problem), refused
page = list_payments.sync(client=client, kind="x402,spend", limit=3)
print(json.dumps({
    "amount": paid.parsed.amount,
    "year": paid.parsed.settled_at.year,
    "replayed": again.headers.get("idempotent-replayed"),
    "fetched": fetched.amount_paid,
    "refused": refused.code,
    "kinds": sorted(f"{item.kind} {item.status}" for item in page.items),
}))
`;

t.test("Python: openapi-python-client", { skip }, async (t) => {
  if ("missing" in python) return;
  const config = join(folder, "config.yml");
  await writeFile(
    config,
    "project_name_override: purser-client\npackage_name_override: purser_client\npost_hooks: []\n",
  );
  const { stderr: warnings } = await runOrThrow(
    join(python.bin, "openapi-python-client"),
    `generate --path openapi.json --output-path purser_client --meta none --config ${config}`.split(
      " ",
    ),
  );
  // The generator does not support JSON lines; it must warn about nothing else.
  t.same(warnings.match(/WARNING.*/g), [
    "WARNING parsing GET /api/audit/export within owners_audit.",
  ]);
  await runOrThrow(python.python, ["-m", "compileall", "-q", "purser_client"]);
  await writeFile(join(folder, "client.py"), PYTHON);
  const { stdout } = await runOrThrow(python.python, ["client.py"]);
  t.match(JSON.parse(stdout), {
    amount: "0.5",
    year: new Date().getFullYear(),
    replayed: "true",
    fetched: "0.001",
    refused: "daily_limit_exceeded",
    kinds: ["spend blocked", "spend settled", "x402 settled"],
  });
});

const GO = `
package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"

	"client/purser"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	ctx := context.Background()
	withKey := purser.WithRequestEditorFn(func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+os.Getenv("AGENT_API_KEY"))
		return nil
	})
	client := must(purser.NewClientWithResponses(os.Getenv("BASE_URL"), withKey))
	key, url := "generated-3", os.Getenv("DEMO_URL")
	params := &purser.AgentSpendParams{IdempotencyKey: &key}
	body := purser.SpendRequest{Recipient: os.Getenv("FRIEND"), Amount: "0.125"}
	paid := must(client.AgentSpendWithResponse(ctx, params, body))
	again := must(client.AgentSpendWithResponse(ctx, params, body))
	fetched := must(client.AgentFetchWithResponse(ctx, nil, purser.X402FetchRequest{Url: &url}))
	body.Amount = "1000"
	refused := must(client.AgentSpendWithResponse(ctx, nil, body))
	must(0, json.NewEncoder(os.Stdout).Encode(map[string]any{
		"amount":   paid.JSON200.Amount,
		"replayed": again.Headers200.IdempotentReplayed,
		"fetched":  fetched.JSON200.AmountPaid,
		"refused":  refused.ApplicationproblemJSON4XX.Code,
	}))
}
`;

/** It had more than 900 when each route had its own responses for each status, with all their headers. */
const MOST_LINES_PER_OPERATION = 460;

t.test("Go: oapi-codegen", { skip: skipGo }, async (t) => {
  if ("missing" in go) return;
  const cwd = join(folder, "go");
  await mkdir(join(cwd, "purser"), { recursive: true });
  const runGo = (...args: string[]) => runOrThrow("go", args, { cwd, more: go.env });
  await runGo("mod", "init", "client");
  const options = "-generate types,client -package purser -o purser/purser.go ../openapi.json";
  const generator = `${GENERATOR}/cmd/oapi-codegen@${GENERATOR_VERSION}`;
  await runGo("run", generator, ...options.split(" "));
  const lines = (await readFile(join(cwd, "purser/purser.go"), "utf8")).split("\n").length;
  const { paths } = JSON.parse(await readFile(join(folder, "openapi.json"), "utf8")) as {
    paths: Record<string, object>;
  };
  const operations = Object.values(paths).flatMap((methods) => Object.keys(methods)).length;
  const each = Math.round(lines / operations);
  t.ok(
    each < MOST_LINES_PER_OPERATION,
    `${lines} lines for ${operations} operations: ${each} each`,
  );
  t.comment(`${lines} lines for ${operations} operations`);
  await writeFile(join(cwd, "main.go"), GO);
  await runGo("get", RUNTIME);
  await runGo("vet", "./...");
  const { stdout } = await runGo("run", ".");
  t.match(JSON.parse(stdout), {
    amount: "0.125",
    replayed: "true",
    fetched: "0.001",
    refused: "daily_limit_exceeded",
  });
});
