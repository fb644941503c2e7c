// Goal: one command creates an agent that can pay and signs only the requested rules; one command connects
// programs and damages none of their settings.
import { execFile } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Client as McpClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { parse as parseJsonc } from "jsonc-parser";
import { parse as parseToml } from "smol-toml";
import t, { type Test } from "tap";
import { request as send } from "undici";
import { maxUint256 } from "viem";
import { generatePrivateKey, privateKeyToAddress } from "viem/accounts";
import { CLIENTS } from "../../packages/purser/src/clients.ts";
import { connect, type ConnectOptions, type Terminal } from "../../packages/purser/src/connect.ts";
import { Purser } from "../../packages/purser/src/index.ts";
import { init, stopOrResume } from "../../packages/purser/src/init.ts";
import { isFullTier } from "../helpers/tier.ts";
import { testApp } from "../helpers/app.ts";
import { reaching } from "../marketplace/seller.ts";

/** It takes a few seconds on an idle machine. */
const NOT_WAITED_FOR_MS = 120_000;
const BIN = fileURLToPath(new URL("../../packages/purser/bin/purser.mjs", import.meta.url));

const local = reaching();
const world = await testApp(t, {
  ...local,
  listen: true,
  configure: (config) => {
    local.configure?.(config);
    config.fetchPrivateOrigins = [config.publicUrl];
  },
});
const { baseUrl } = world;
const demoUrl = `${baseUrl}/api/arc-stats`;

interface Made {
  owner: string;
  agentId: string;
  wallet: string;
  apiKey: string;
  funded: string;
  allowlist: string[];
  savedIn?: string;
  saveFailed?: string;
}

function purser(
  args: string[],
  env: Record<string, string>,
): Promise<{ code: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    const options = { env: { PATH: process.env["PATH"] ?? "", PURSER_URL: baseUrl, ...env } };
    execFile(process.execPath, [BIN, ...args], options, (error, stdout, stderr) =>
      resolve({ code: typeof error?.code === "number" ? error.code : 0, stdout, stderr }),
    ).stdin?.end();
  });
}

t.test("from a running service to a paid call", async (t) => {
  const home = t.testdir({});
  const startedMs = performance.now();
  const made = await purser(
    ["init", "--name", "First", "--daily-limit", "2", "--fund", "5", "--save"],
    {
      HOME: home,
    },
  );
  t.equal(made.code, 0, made.stdout);
  const agent = JSON.parse(made.stdout) as Made;
  t.match(agent, { funded: "5", dailyLimit: "2", name: "First" });
  t.equal(made.stdout.split(agent.apiKey).length - 1, 1, "the key is shown once");
  // The key comes from the file that init wrote.
  const paid = await purser(["fetch", demoUrl, "--max", "0.01"], { HOME: home });
  t.ok(performance.now() - startedMs < NOT_WAITED_FOR_MS, "it does not take minutes");
  t.match([paid.code, JSON.parse(paid.stdout)], [0, { paid: true, amountPaid: "0.001" }]);
  const file = join(home, ".config", "purser", "config.json");
  t.equal(agent.savedIn, file);
  t.equal(statSync(file).mode & 0o777, 0o600);
  const other = await purser(["me"], { HOME: home, PURSER_URL: "http://127.0.0.1:9" });
  t.equal(other.code, 2, "the stored key is not sent to another service");
  t.match(
    other.stderr + other.stdout,
    `belongs to ${baseUrl}, and is not sent to http://127.0.0.1:9`,
  );
});

t.test("an owner with a key file: the given rules, and no others", async (t) => {
  const privateKey = generatePrivateKey();
  const home = t.testdir({ "owner.key": `${privateKey}\n`, "wrong.key": "hello" });
  const friend = privateKeyToAddress(generatePrivateKey());
  const args = ["init", "--key-file", join(home, "owner.key"), "--allow", friend];
  const made = await purser(args, { HOME: home });
  t.equal(made.code, 0, made.stdout);
  const agent = JSON.parse(made.stdout) as Made;
  t.match(agent, { owner: privateKeyToAddress(privateKey), allowlist: [friend] });
  t.notOk(existsSync(join(home, ".config")), "nothing is stored without --save");
  const me = await new Purser({ apiKey: agent.apiKey, baseUrl }).me();
  t.match(me, { limits: { limit: "10" }, allowlist: [{ address: friend }], balance: "100" });
  const wrong = await purser(["init", "--key-file", join(home, "wrong.key")], { HOME: home });
  t.match([wrong.code, wrong.stdout], [2, /64 hexadecimal digits/]);
  const missing = await purser(["init", "--key-file", join(home, "none")], { HOME: home });
  t.match([missing.code, missing.stdout], [2, /none/]);
  t.notMatch(made.stdout + wrong.stdout, privateKey.slice(2));
});

/** A proxy in front of the service that changes its responses, as a dishonest service would. */
async function proxyWith(t: Test, changes: Record<string, () => [number, object] | undefined>) {
  const bodies: string[] = [];
  const server = createServer((request, response) => {
    void (async () => {
      let sent = "";
      for await (const chunk of request) sent += String(chunk);
      bodies.push(sent);
      const { host: _host, connection: _connection, ...headers } = request.headers;
      // A new connection, because the service may close a kept one at that moment.
      const answer = await send(`${baseUrl}${request.url}`, {
        method: request.method ?? "GET",
        headers: { ...headers, origin: baseUrl } as unknown as Record<string, string>,
        ...(sent !== "" && { body: sent }),
        reset: true,
      });
      const cookies = [answer.headers["set-cookie"] ?? []].flat();
      const lie = changes[request.url ?? ""]?.();
      response.writeHead(lie?.[0] ?? answer.statusCode, {
        "content-type": "application/json",
        ...(cookies.length > 0 && { "set-cookie": cookies }),
      });
      response.end(lie ? JSON.stringify(lie[1]) : await answer.body.text());
    })();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, bodies };
}

const ABSENT = String(maxUint256);
const FRIEND = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
const PAYEE = {
  payee: FRIEND,
  label: "",
  site: "",
  dailyLimit: ABSENT,
  perPaymentLimit: ABSENT,
  expiresAt: ABSENT,
};
const ORDER = {
  agent: "agt_1",
  wallet: FRIEND,
  version: "1",
  name: "Mine",
  dailyLimit: "2000000",
  weeklyLimit: ABSENT,
  monthlyLimit: ABSENT,
  perPaymentLimit: ABSENT,
  paymentsPerHour: ABSENT,
  fetch: "any",
  expiresAt: ABSENT,
  payees: [PAYEE],
  nonce: `0x${"00".repeat(32)}`,
  deadline: "0",
};
/** The members that the service chooses: the new agent's identity, and the nonce. */
const CHOSEN = new Set(["agent", "wallet", "nonce"]);

t.test("the owner's wallet signs the requested rules, or nothing", async (t) => {
  const otherAccount = privateKeyToAddress(generatePrivateKey());
  const lieOf = (name: string) =>
    name === "payee" ? otherAccount : name === "deadline" ? "99999999999" : "7";
  const bent = Object.keys(ORDER)
    .filter((name) => !CHOSEN.has(name) && name !== "payees")
    .map((name): [string, object] => [name, { ...ORDER, [name]: lieOf(name) }]);
  const bentPayees = Object.keys(PAYEE).map((name): [string, object] => [
    `a payee's ${name}`,
    { ...ORDER, payees: [{ ...PAYEE, [name]: lieOf(name) }] },
  ]);
  const cases: [string, object, number?][] = [
    ["the truth", ORDER],
    ...bent,
    ...bentPayees,
    ["one payee more", { ...ORDER, payees: [PAYEE, { ...PAYEE, payee: otherAccount }] }],
    ["no payee", { ...ORDER, payees: [] }],
    ["a member more", { ...ORDER, more: "1" }],
    ["another chain", ORDER, 1],
  ];
  t.ok(cases.length > 20);
  const home = t.testdir({});
  let [order, chainId] = [{} as object, 0];
  const service = await proxyWith(t, {
    // The sign-in fails behind another origin; the test is about what is signed after it.
    "/api/auth/verify": () => [200, { address: "0x" }],
    "/api/agents": () => {
      const typedData = { domain: { chainId } };
      return [403, { code: "owner_signature_required", order, typedData }];
    },
  });
  for (const [name, questions, chain = 5042002] of cases) {
    [order, chainId] = [questions, chain];
    service.bodies.length = 0;
    const env = { HOME: home, PURSER_URL: service.url };
    const error = await init({ name: "Mine", dailyLimit: "2", allow: [FRIEND] }, env).then(
      () => undefined,
      (caught: Error) => caught,
    );
    const isSigned = /"authorization"/.test(service.bodies.join());
    t.equal(isSigned, name === "the truth", name);
    if (!isSigned) t.match(error?.message, /differs from what was requested/);
  }
});

t.test("an owner stops every agent, and resumes with a signature of that stop only", async (t) => {
  const home = t.testdir({ "owner.key": generatePrivateKey() });
  const keyFile = join(home, "owner.key");
  const asOwner = ["--key-file", keyFile];
  const made = await purser(["init", ...asOwner, "--allow", FRIEND], { HOME: home });
  const { owner, apiKey } = JSON.parse(made.stdout) as Made;
  const pay = () => purser(["spend", FRIEND, "0.01"], { HOME: home, AGENT_API_KEY: apiKey });
  const run = async (command: "stop" | "resume") => {
    const { code, stdout } = await purser([command, ...asOwner], { HOME: home });
    return [code, JSON.parse(stdout) as Record<string, unknown>];
  };
  t.match(await run("stop"), [0, { owner, stopped: { by: owner, agents: 1 } }]);
  t.match(await run("stop"), [0, { stopped: { agents: 1 } }], "twice is no error");
  const refused = await pay();
  t.match([refused.code, JSON.parse(refused.stdout)], [3, { code: "agent_paused" }]);
  t.match(await run("resume"), [0, { owner, stopped: null, resumedAgents: 1 }]);
  t.match(await run("resume"), [0, { resumedAgents: 0 }], "nothing to resume is no error");
  t.equal((await pay()).code, 0);
  const wrong = await purser(["stop", "--key-file", join(home, "none")], { HOME: home });
  t.match([wrong.code, wrong.stdout], [2, /none/]);

  const order = { owner, stoppedAt: "1", nonce: ORDER.nonce, deadline: "0" };
  let sent: object = order;
  const service = await proxyWith(t, {
    "/api/auth/verify": () => [200, { address: "0x" }],
    "/api/owner/resume": () => {
      const typedData = { domain: { chainId: 5042002 } };
      return [403, { code: "owner_signature_required", order: sent, typedData }];
    },
  });
  for (const change of [{ owner: FRIEND }, { deadline: "99999999999" }, { more: "1" }, {}]) {
    service.bodies.length = 0;
    sent = { ...order, ...change };
    const env = { HOME: home, PURSER_URL: service.url };
    await stopOrResume("resume", { keyFile }, env).catch(() => {});
    const isSigned = /"authorization"/.test(service.bodies.join());
    t.equal(isSigned, Object.keys(change).length === 0, JSON.stringify(change));
  }
});

t.test("the key that is shown once is printed whatever fails after it", async (t) => {
  const home = t.testdir({ ".config": "a file" });
  const made = await purser(["init", "--save"], { HOME: home });
  t.equal(made.code, 0, made.stdout);
  const agent = JSON.parse(made.stdout) as Made;
  t.match(agent, { apiKey: /^purser_/, saveFailed: /ENOTDIR|EEXIST/ });
  t.match(made.stdout, /export PURSER_URL=.*AGENT_API_KEY=/, "and how to use it without a file");
  const apiKey = `purser_${"k".repeat(39)}`;
  const service = await proxyWith(t, {
    "/api/auth/verify": () => [200, { address: "0x" }],
    "/api/agents": () => [201, { agent: { id: "agt_1", walletAddress: FRIEND }, apiKey }],
    "/api/auth/logout": () => [503, {}],
  });
  t.match(await init({}, { HOME: home, PURSER_URL: service.url }), { apiKey });
});

t.test("a wrong URL is reported at once", async (t) => {
  const from = performance.now();
  const run = await purser(["init"], { HOME: t.testdir({}), PURSER_URL: "http://127.0.0.1:9" });
  t.match([run.code, JSON.parse(run.stdout)], [1, { code: "not_reached" }]);
  t.ok(performance.now() - from < 20_000, "before a connection timeout would end it");
});

t.test("a service that has just started has no sellers yet", async (t) => {
  let looks = 0;
  const agent = { id: "agt_1", walletAddress: FRIEND };
  const { url } = await proxyWith(t, {
    "/api/listings?limit=100": () => ((looks += 1) < 3 ? [200, { items: [] }] : undefined),
    "/api/auth/verify": () => [200, { address: "0x" }],
    "/api/agents": () => [201, { agent, apiKey: `purser_${"k".repeat(39)}` }],
  });
  const made = (await init({}, { HOME: t.testdir({}), PURSER_URL: url })) as Made;
  t.equal(looks, 3);
  t.equal(made.allowlist.length, 1);
});

const owned = (await init(
  { name: "Connected" },
  { HOME: t.testdir({}), PURSER_URL: baseUrl },
)) as Made;
const silent: Terminal = { isInteractive: false, print: () => {}, confirm: async () => false };

function connecting(home: string, more: Partial<ConnectOptions> = {}, terminal = silent) {
  const env = { HOME: home, PURSER_URL: baseUrl, AGENT_API_KEY: owned.apiKey };
  const all = CLIENTS.map(({ id }) => id);
  return connect({ only: all, yes: true, ...more }, env, terminal, "linux");
}

/** As text, because comments must be kept too. */
const OTHER_SETTINGS = {
  ".claude.json":
    '{\n\t"numStartups": 7,\n\t"mcpServers": { "other": { "type": "http", "url": "https://o.example" } }\n}\n',
  ".config": {
    Claude: { "claude_desktop_config.json": '{"globalShortcut":"F1"}' },
    Code: {
      User: {
        "mcp.json":
          '{\n  // mine\n  "servers": {\n    "a": { "command": "a" }, // and this\n  },\n}\n',
      },
    },
  },
  ".codex": {
    "config.toml":
      'model = "m" # the model\n\n[mcp_servers.purser]\ncommand = "old"\nstartup_timeout_sec = 30\n\n[mcp_servers.purser.env]\nA = "b"\n\n# the other one\n[mcp_servers.other]\ncommand = "o"\n',
  },
  ".cursor": { "mcp.json": "" },
};

const textOf = (home: string, id: string): string => {
  const client = CLIENTS.find((candidate) => candidate.id === id);
  return readFileSync(client?.file({ env: { HOME: home }, platform: "linux" }) ?? "", "utf8");
};

t.test("every program's own file keeps its content", async (t) => {
  const home = t.testdir(OTHER_SETTINGS);
  chmodSync(join(home, ".claude.json"), 0o640);
  const { connected, savedIn } = await connecting(home);
  t.same(
    connected.map(({ status }) => status),
    CLIENTS.map(() => "written"),
  );
  const env = { PURSER_URL: baseUrl, PURSER_KEY_NAME: String };
  const stdio = { command: process.execPath, args: [String, "mcp"], env };
  t.match(JSON.parse(textOf(home, "claude-code")), {
    numStartups: 7,
    mcpServers: { other: { url: "https://o.example" }, purser: { type: "stdio", ...stdio } },
  });
  t.match(textOf(home, "claude-code"), /\n\t"numStartups"/, "the indentation is kept");
  t.equal(statSync(join(home, ".claude.json")).mode & 0o777, 0o640);
  t.match(JSON.parse(textOf(home, "claude-desktop")), {
    globalShortcut: "F1",
    mcpServers: { purser: stdio },
  });
  for (const id of ["cursor", "gemini", "windsurf"])
    t.match(JSON.parse(textOf(home, id)), { mcpServers: { purser: stdio } }, id);
  const code = textOf(home, "vscode");
  t.match(code, /\/\/ mine[\s\S]*\/\/ and this/);
  t.match(parseJsonc(code, [], { allowTrailingComma: true }), {
    servers: { a: { command: "a" }, purser: { type: "stdio", ...stdio } },
  });
  const toml = textOf(home, "codex");
  t.match(toml, /# the model[\s\S]*# the other one/);
  t.match(parseToml(toml), {
    model: "m",
    mcp_servers: { other: { command: "o" }, purser: { ...stdio, startup_timeout_sec: 30 } },
  });
  t.notMatch(toml, /old/);

  const backups = connected.flatMap((one) => ("backup" in one && one.backup ? [one.backup] : []));
  t.equal(backups.length, 5, "one for each of the five files that existed");
  const kept = connected.find(({ client }) => client === "codex");
  t.equal(
    readFileSync(kept && "backup" in kept ? (kept.backup ?? "") : "", "utf8"),
    OTHER_SETTINGS[".codex"]["config.toml"],
  );
  for (const { file } of connected)
    t.notMatch(readFileSync(file, "utf8"), owned.apiKey, "the files do not contain the key");
  t.equal(statSync(savedIn ?? "").mode & 0o777, 0o600);
  t.match(readFileSync(savedIn ?? "", "utf8"), owned.apiKey);

  const again = await connecting(home);
  t.same(
    again.connected.map(({ status }) => status),
    CLIENTS.map(() => "unchanged"),
    "a second run changes nothing",
  );
  t.equal(
    readdirSync(home, { recursive: true, encoding: "utf8" }).filter((name) =>
      /backup|tmp$/.test(name),
    ).length,
    backups.length,
  );

  t.test("the entry in each file starts the wallet", async (t) => {
    const started = connected.filter(
      ({ client }) => isFullTier || ["claude-code", "codex"].includes(client),
    );
    for (const { client: program, file } of started) {
      const text = readFileSync(file, "utf8");
      const entry = startOf(file.endsWith(".toml") ? parseToml(text) : parseJsonc(text));
      if (!entry) throw new Error(`${program}: nothing to start`);
      const client = new McpClient({ name: "test", version: "1" });
      t.teardown(() => client.close());
      const { command, args, env } = entry;
      await client.connect(
        new StdioClientTransport({ command, args, env: { ...env, HOME: home }, stderr: "ignore" }),
      );
      const status = await client.callTool({ name: "wallet_status", arguments: {} });
      t.match(JSON.stringify(status), owned.wallet, program);
      await client.close();
    }
  });
});

t.test("nothing is written without consent, nor where it would do harm", async (t) => {
  const home = t.testdir({
    ".cursor": { "mcp.json": "{ this is not JSON" },
    ".gemini": { "settings.json": '{"mcpServers": []}' },
    ".codex": { "config.toml": 'mcp_servers = { purser = { command = "inline" } }\n' },
    ".codeium": { windsurf: {} },
    dotfiles: { "claude.json": "{}" },
  });
  symlinkSync(join(home, "dotfiles", "claude.json"), join(home, ".claude.json"));
  const before = snapshot(home);
  await t.rejects(connecting(home, { yes: false }), /no terminal for the question/);
  const shown: string[] = [];
  const showing = { ...silent, print: (line: string) => void shown.push(line) };
  await connecting(home, { print: true, yes: false }, showing);
  t.match(shown.join("\n"), /"mcpServers"/);
  t.notMatch(shown.join("\n"), owned.apiKey);
  const questions: string[] = [];
  const refusing = {
    isInteractive: true,
    print: () => {},
    confirm: async (question: string) => (questions.push(question), false),
  };
  const declined = await connecting(home, { yes: false }, refusing);
  t.ok(
    questions.length > 0 && questions.every((question) => question.startsWith("Write this to /")),
  );
  t.notOk(declined.connected.some(({ status }) => status === "written"));
  t.notOk(declined.savedIn);
  t.same(snapshot(home), before, "no file changed");
  const wrong = { HOME: home, PURSER_URL: baseUrl, AGENT_API_KEY: "purser_wrong" };
  const work = connect({ only: ["windsurf"], yes: true }, wrong, silent, "linux");
  await t.rejects(work, { code: "invalid_api_key" });
  t.same(snapshot(home), before, "an invalid key is not stored");
  await t.rejects(
    connecting(home, { only: ["emacs"] }),
    /no client emacs; choose from claude-code/,
  );

  const { connected } = await connecting(home);
  const of = (id: string) => connected.find(({ client }) => client === id);
  for (const id of ["cursor", "gemini", "codex"]) t.match(of(id), { status: "refused" }, id);
  t.equal(textOf(home, "cursor"), "{ this is not JSON");
  t.ok(lstatSync(join(home, ".claude.json")).isSymbolicLink(), "a symbolic link stays a link");
  t.match(readFileSync(join(home, "dotfiles", "claude.json"), "utf8"), /purser/);
});

t.test("each program pays from the wallet it was connected with", async (t) => {
  const home = t.testdir({});
  const make = async (name: string) =>
    (await init({ name, save: true }, { HOME: home, PURSER_URL: baseUrl })) as Made;
  const connectWith = (client: string, { apiKey }: Made) =>
    connect(
      { only: [client], yes: true },
      { HOME: home, PURSER_URL: baseUrl, AGENT_API_KEY: apiKey },
      silent,
      "linux",
    );
  const second = await make("Second");
  await connectWith("cursor", owned);
  await connectWith("gemini", second);
  const third = await make("Third");
  const walletOf = async (env: Record<string, string>) => {
    const { stdout } = await purser(["me"], { HOME: home, ...env });
    return (JSON.parse(stdout) as { wallet?: string }).wallet;
  };
  const entryOf = (id: string) => startOf(JSON.parse(textOf(home, id)))?.env ?? {};
  t.equal(await walletOf(entryOf("cursor")), owned.wallet);
  t.equal(await walletOf(entryOf("gemini")), second.wallet);
  const besides = { ...entryOf("cursor"), AGENT_API_KEY: third.apiKey };
  t.equal(await walletOf(besides), owned.wallet, "even if the shell has another key");
  t.equal(await walletOf({}), third.wallet, "and the command line from the key saved last");
  const texts = ["cursor", "gemini"].map((id) => textOf(home, id)).join("");
  for (const { apiKey } of [owned, second, third]) t.notOk(texts.includes(apiKey));
  const gone = { ...entryOf("cursor"), PURSER_KEY_NAME: "purser_gone-gone" };
  const refused = await purser(["me"], { HOME: home, ...gone });
  t.match(
    [refused.code, refused.stdout],
    [2, /has no key purser_gone-gone/],
    "from that wallet or from none",
  );
});

t.test("what a program writes during the question is kept", async (t) => {
  const home = t.testdir({ ".claude.json": '{"numStartups": 7}' });
  const file = join(home, ".claude.json");
  const slow = (text: string): Terminal => ({
    ...silent,
    isInteractive: true,
    confirm: async () => (writeFileSync(file, text), true),
  });
  const only = { only: ["claude-code"], yes: false };
  await connecting(home, only, slow('{"numStartups": 8}'));
  const after = JSON.parse(readFileSync(file, "utf8")) as object;
  t.match(after, { numStartups: 8, mcpServers: { purser: { type: "stdio" } } });
  writeFileSync(file, "{}");
  const { connected } = await connecting(home, only, slow("{ broken"));
  t.match(connected, [{ status: "refused", reason: /not a JSON object/ }]);
  t.equal(readFileSync(file, "utf8"), "{ broken");
});

t.test("a file that cannot be written is reported, and does not stop others", async (t) => {
  const home = t.testdir({ ".gemini": "a file", blocked: { ".config": "a file" } });
  const args = ["connect", "claude-code", "gemini", "windsurf", "--yes"];
  const run = await purser(args, { HOME: home, AGENT_API_KEY: owned.apiKey });
  t.equal(run.code, 1, run.stdout);
  const done = JSON.parse(run.stdout) as { connected: unknown[]; savedIn: string };
  t.match(done.connected, [
    { client: "claude-code", status: "written" },
    { client: "gemini", status: "refused", reason: /ENOTDIR|EEXIST/ },
    { client: "windsurf", status: "written" },
  ]);
  t.match(readFileSync(done.savedIn, "utf8"), owned.apiKey);
  const blocked = join(home, "blocked");
  const none = await connecting(blocked, { only: ["cursor"] });
  t.match(none.connected, [{ status: "refused", reason: /ENOTDIR|EEXIST/ }]);
  t.notOk(existsSync(join(blocked, ".cursor")), "no entry without the key that it names");
});

t.test("from npx's cache no entry is written, as another package could run", async (t) => {
  const home = t.testdir({});
  const copy = join(home, "_npx", "1", "node_modules", "purser");
  cpSync(join(BIN, "..", ".."), copy, {
    recursive: true,
    filter: (path) => !/node_modules|src$/.test(path.slice(join(BIN, "..", "..").length)),
  });
  const run = (args: string[]) =>
    new Promise<string>((resolve) => {
      const env = { HOME: home, PURSER_URL: baseUrl, AGENT_API_KEY: owned.apiKey };
      const command = [join(copy, "bin", "purser.mjs"), "connect", "cursor", "--yes", ...args];
      execFile(process.execPath, command, { env }, (_error, stdout) => resolve(stdout));
    });
  t.match(await run([]), /install the package first/);
  t.notOk(existsSync(join(home, ".cursor")));
  t.match(await run(["--oauth"]), /"written"/, "a URL works from everywhere");
});

t.test("by URL alone where the program signs in itself", async (t) => {
  const home = t.testdir({});
  const found = join(home, ".cursor");
  mkdirSync(found);
  const env = { HOME: home, PURSER_URL: baseUrl };
  const { connected } = await connect({ only: [], oauth: true, yes: true }, env, silent, "linux");
  t.match(
    connected,
    [{ client: "cursor", status: "written" }],
    "only the programs on this machine",
  );
  t.same(JSON.parse(readFileSync(join(found, "mcp.json"), "utf8")), {
    mcpServers: { purser: { url: `${baseUrl}/mcp` } },
  });
  const all = await connect(
    { only: CLIENTS.map(({ id }) => id), oauth: true, yes: true },
    env,
    silent,
    "linux",
  );
  t.match(
    all.connected.find(({ client }) => client === "claude-desktop"),
    { status: "refused" },
  );
  t.match(JSON.parse(textOf(home, "gemini")), { mcpServers: { purser: { httpUrl: String } } });
  t.match(JSON.parse(textOf(home, "windsurf")), { mcpServers: { purser: { serverUrl: String } } });
  t.match(JSON.parse(textOf(home, "vscode")), {
    servers: { purser: { type: "http", url: String } },
  });
  t.match(parseToml(textOf(home, "codex")), { mcp_servers: { purser: { url: `${baseUrl}/mcp` } } });
  await t.rejects(
    connect({ only: ["cursor"], yes: true }, { HOME: home, PURSER_URL: baseUrl }, silent, "linux"),
    /no API key/,
  );
  // The same on the other systems: only the paths differ.
  const places = (["darwin", "win32"] as const).map((platform) =>
    CLIENTS.map((client) =>
      client.file({ env: { HOME: "/h", APPDATA: "/h/AppData/Roaming" }, platform }),
    ),
  );
  t.ok(places[0]?.includes("/h/Library/Application Support/Claude/claude_desktop_config.json"));
  t.ok(places[1]?.includes("/h/AppData/Roaming/Code/User/mcp.json"));
});

function snapshot(folder: string): [string, string][] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .map((name) => join(folder, name))
    .filter((path) => statSync(path).isFile())
    .map((path) => [path, readFileSync(path, "utf8")]);
}

interface Start {
  command: string;
  args: string[];
  env?: Record<string, string>;
}

/** The wallet's entry, whichever key the program has for its servers. */
function startOf(settings: unknown): Start | undefined {
  if (typeof settings !== "object" || settings === null) return undefined;
  for (const [name, value] of Object.entries(settings)) {
    if (name === "purser" && "command" in (value as object)) return value as Start;
    const found = startOf(value);
    if (found) return found;
  }
  return undefined;
}
