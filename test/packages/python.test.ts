// Goal: the Python client, installed as a wheel in an empty environment, pays once, reports errors, and is
// typed.
// Tier: full (needs other languages or their package registries).
import { execFile } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import t, { type Test } from "tap";
import { agentWorld } from "../agent-tools/world.ts";
import { pythonWith } from "../helpers/python.ts";
import { bothProtocols, garbledTls, selfSigned } from "./bad-connections.ts";
import { cleanEnvironment, ROOT, run } from "./packed.ts";

const clean = (work: () => Promise<void>) => t.teardown(work);
const folder = t.testdir({});

const tools = await pythonWith(["build==1.6.1", "setuptools==84.2.1", "mypy==2.4.1"], clean);

async function builtWheel(): Promise<string | { missing: string }> {
  if ("missing" in tools) return tools;
  const source = join(folder, "source");
  mkdirSync(source);
  for (const name of ["pyproject.toml", "README.md", "LICENSE", "src"])
    cpSync(join(ROOT, "packages", "python", name), join(source, name), {
      recursive: true,
      filter: (path) => !/__pycache__|egg-info/.test(path),
    });
  const args = ["-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source];
  await run(tools.python, args);
  const wheel = readdirSync(folder).find((name) => name.endsWith(".whl"));
  if (wheel === undefined) throw new Error("no wheel was built");
  return join(folder, wheel);
}

const wheel = await builtWheel();
const environment = typeof wheel === "string" ? await pythonWith([wheel], clean) : wheel;
const wheelFile = typeof wheel === "string" ? wheel : "";
const missing = "missing" in environment ? environment.missing : undefined;
const python = "missing" in environment ? "" : environment.python;

function runPython(source: string, env: Record<string, string>): Promise<string> {
  const file = join(folder, "program.py");
  writeFileSync(file, source);
  return new Promise((resolve, reject) => {
    execFile(python, [file], { env: cleanEnvironment(env) }, (error, stdout, stderr) =>
      error ? reject(new Error(stderr)) : resolve(stdout),
    );
  });
}

t.test("the wheel contains the client and nothing else", { skip: missing ?? false }, async (t) => {
  const { stdout } = await run(python, [
    "-c",
    "import sys, zipfile; print('\\n'.join(zipfile.ZipFile(sys.argv[1]).namelist()))",
    wheelFile,
  ]);
  const files = stdout.trim().split("\n");
  t.same(
    files.filter(
      (file) =>
        !/^purser\/(\w+\.py|py\.typed)$|^purser_client-[\d.]+\.dist-info\/(METADATA|WHEEL|RECORD|top_level\.txt|licenses\/LICENSE)$/.test(
          file,
        ),
    ),
    [],
  );
  t.ok(files.includes("purser/py.typed"));
});

const PAYING = `
import json, sys
from purser import Denied, Purser
purser = Purser()
me = purser.me()
quote = purser.quote(sys.argv[1] if len(sys.argv) > 1 else DEMO)
first = purser.fetch(DEMO, max_amount="0.01", idempotency_key="py-1")
again = purser.fetch(DEMO, max_amount="0.01", idempotency_key="py-1")
purser.open_task("python-1", "0.6", name="Python")
spent = purser.spend(FRIEND, "0.5", memo="from Python", task="python-1")
task = purser.task("python-1")
try:
    purser.spend(FRIEND, "100")
    refused = None
except Denied as denied:
    refused = [denied.code, denied.problem["policy"]["requested"]]
print(json.dumps({
    "wallet": me["wallet"], "price": quote.get("price"), "paid": first["amountPaid"],
    "same": first["txHash"] == again["txHash"], "memo": purser.payment(spent["paymentId"])["memo"],
    "task": [task["left"], purser.tasks()["items"][0]["id"], purser.close_task("python-1")["state"]],
    "ofTask": len(purser.payments(task="python-1")["items"]),
    "payments": len(purser.payments()["items"]), "refused": refused,
    "listed": purser.listings(search="statistics")["items"][0]["url"],
}))
`;

t.test("the client pays", { skip: missing ?? false }, async (t) => {
  const { agent, friend, demoUrl, baseUrl } = await agentWorld(t);
  const source = `DEMO = ${JSON.stringify(demoUrl)}\nFRIEND = ${JSON.stringify(friend)}\n${PAYING}`;
  const printed = await runPython(source, { AGENT_API_KEY: agent.apiKey, PURSER_URL: baseUrl });
  t.match(JSON.parse(printed), {
    wallet: agent.walletAddress,
    price: "0.001",
    paid: "0.001",
    same: true,
    memo: "from Python",
    task: ["0.1", "python-1", "closed"],
    ofTask: 1,
    payments: 3,
    refused: ["daily_limit_exceeded", "100"],
    listed: demoUrl,
  });
});

/** Responds to the requests in order; the last response is repeated. */
async function scripted(t: Test, ...answers: ((response: ServerResponse) => void)[]) {
  const keys: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    request.resume();
    keys.push(request.headers["idempotency-key"] as string | undefined);
    request.on("end", () => answers[Math.min(keys.length, answers.length) - 1]?.(response));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  return { keys, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

const json = (status: number, body: object) => (response: ServerResponse) =>
  void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
const html = (response: ServerResponse) =>
  void response.writeHead(404, { "content-type": "text/html" }).end("<p>");
const redirect = (response: ServerResponse) =>
  void response.writeHead(302, { location: "https://elsewhere.example/" }).end();
const cut = (response: ServerResponse) => void response.socket?.destroy();

t.test(
  "it retries only where that can help, and keeps what was delivered",
  { skip: missing ?? false },
  async (t) => {
    const done = json(200, { success: true, txHash: "0x1" });
    const unknown = json(504, {
      code: "payment_status_unknown",
      status: 504,
      detail: "not known",
      paymentId: "pay_1",
      thirdParty: { untrusted: true, status: 200, text: "the goods" },
    });
    const lost = await scripted(t, cut, html, done);
    const delivered = await scripted(t, unknown, cut);
    const stranger = await scripted(t, html);
    const moved = await scripted(t, redirect);
    const printed = await runPython(
      `
import json, time
from purser import NotReached, OutcomeUnknown, Purser
urls = json.loads(${JSON.stringify(JSON.stringify({ lost: lost.url, delivered: delivered.url, stranger: stranger.url, moved: moved.url }))})
said = {"lost": Purser("k", urls["lost"]).spend("0x1", "1")["txHash"]}
try:
    Purser("k", urls["delivered"], timeout=0.9).fetch("https://shop.example")
except OutcomeUnknown as error:
    said["delivered"] = [error.code, error.delivered["text"], error.idempotency_key]
wrong = [urls["stranger"], urls["moved"], "http://127.0.0.1:1", "http://no-such-host.invalid", "https" + urls["stranger"][4:], "localhost:3000"]
said["wrong"] = []
for url in wrong:
    began = time.monotonic()
    try:
        Purser("k", url).spend("0x1", "1")
    except NotReached as error:
        said["wrong"].append([error.code, url in str(error), time.monotonic() - began < 2])
print(json.dumps(said))
`,
      {},
    );
    const said = JSON.parse(printed) as { lost: string; delivered: string[]; wrong: unknown[][] };
    t.equal(said.lost, "0x1");
    t.equal(new Set(lost.keys).size, 1, "all attempts have the same key");
    t.same(said.delivered, ["payment_status_unknown", "the goods", delivered.keys[0]]);
    t.same(
      said.wrong,
      ["purser", "purser", "reached", "reached", "reached", "reached"].map((what) => [
        `not_${what}`,
        true,
        true,
      ]),
    );
    t.equal(stranger.keys.length + moved.keys.length, 2, "each server gets one request");
  },
);

t.test("an unknown outcome is never called unpaid", { skip: missing ?? false }, async (t) => {
  const tls = selfSigned(folder);
  if (!tls) return t.comment("no openssl on this machine: TLS was not tested");
  const hangsUp = await bothProtocols(t, tls, (method, response) =>
    method === "POST" ? cut(response) : html(response),
  );
  const services = [await garbledTls(t, tls, 3), await garbledTls(t, tls, 9)];
  const line = await scripted(t, (response) => response.socket?.end("HTTP#1.1 ok\r\n\r\n"));
  const onlyTls = await garbledTls(t, tls, 3);
  const urls = [...services.map(({ url }) => url), hangsUp.url, line.url];
  const looks: number[] = [];
  const waits = createServer((request, response) => {
    looks.push(Number(/wait=(\d+)/.exec(request.url ?? "")?.[1]));
    const status = looks.length < 3 ? "open" : "granted";
    setTimeout(() => json(200, { status })(response), (looks.at(-1) ?? 0) * 1_000);
  }).listen(0, "127.0.0.1");
  await once(waits, "listening");
  t.teardown(() => waits.close());
  const waitsUrl = `http://127.0.0.1:${(waits.address() as AddressInfo).port}`;
  const printed = await runPython(
    `
import json
from purser import Purser, PurserError
def said(url):
    try:
        Purser("k", url, timeout=0.9).spend("0x1", "1")
    except PurserError as error:
        return error.code
waiting = Purser("k", ${JSON.stringify(waitsUrl)}, timeout=2.5)
print(json.dumps([[said(url) for url in ${JSON.stringify(urls)}], said(${JSON.stringify(onlyTls.url.replace("https", "http"))}),
    waiting.wait_for_approval("apr_1", timeout=8)["status"]]))
`,
    { SSL_CERT_FILE: tls.certFile },
  );
  const [unknown, other, decided] = JSON.parse(printed) as [string[], string, string];
  t.same(
    unknown,
    urls.map(() => "no_answer"),
  );
  t.ok(
    services.every(({ requests }) => requests[0]?.startsWith("POST ")),
    "the request had arrived",
  );
  t.equal(other, "not_reached", "a port that only speaks TLS has read no plain HTTP request");
  t.same(
    [decided, looks],
    ["granted", [1, 1, 1]],
    "each wait takes half of a call's timeout at most",
  );
});

const TYPED = `
from purser import ApprovalNeeded, Denied, FetchResult, Purser, PurserError

purser = Purser(api_key="k", base_url="http://localhost:3000")
remaining: str = purser.me()["limits"]["remaining"]
answer: FetchResult = purser.fetch("https://x.example", method="POST", body={"a": 1}, max_amount="0.01")
hash: str | None = answer["txHash"]
try:
    purser.spend("0x", "1", request_approval=True, wait_for_approval=60)
except Denied as denied:
    code: str = denied.code
except ApprovalNeeded as needed:
    url: str = needed.approval["waitUrl"]
except PurserError as error:
    key: str | None = error.idempotency_key
`;
const WRONG = [
  'purser.fetch("https://x.example", method="BREW")',
  'purser.spend("0x", 1)',
  'purser.me()["walet"]',
  'purser.quote("https://x.example", body={})',
];

t.test("it is typed", { skip: missing ?? false }, async (t) => {
  if ("missing" in tools) return;
  const project = t.testdir({ "right.py": TYPED, "wrong.py": TYPED + WRONG.join("\n") });
  // With the packages that are installed beside the wheel.
  const strict = ["-m", "mypy", "--strict", "--python-executable", python];
  const check = (file: string) =>
    run(tools.python, [...strict, file], { cwd: project }).catch(
      (error: { stdout: string }) => error,
    );
  t.match((await check("right.py")).stdout, /^Success: no issues/);
  const { stdout } = await check("wrong.py");
  const lines = TYPED.split("\n").length;
  WRONG.forEach((line, index) => t.match(stdout, `wrong.py:${lines + index}: error`, line));
});
