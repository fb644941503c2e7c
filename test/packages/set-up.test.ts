// Goal: one command makes an agent that can pay, signing what was asked for and nothing else; one command connects programs, and harms nothing of theirs.
import { execFile } from "node:child_process";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
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
import { generatePrivateKey, privateKeyToAddress } from "viem/accounts";
import { CLIENTS } from "../../packages/purser/src/clients.ts";
import { connect, type ConnectOptions, type Terminal } from "../../packages/purser/src/connect.ts";
import { Purser } from "../../packages/purser/src/index.ts";
import { init } from "../../packages/purser/src/init.ts";
import { testApp } from "../helpers/app.ts";
import { reaching } from "../marketplace/seller.ts";

const BIN = fileURLToPath(new URL("../../packages/purser/bin/purser.mjs", import.meta.url));
const MINUTE_MS = 60_000;

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
  const from = performance.now();
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
  // The key comes from the file that init kept.
  const paid = await purser(["fetch", demoUrl, "--max", "0.01"], { HOME: home });
  t.ok(performance.now() - from < MINUTE_MS, `${Math.round(performance.now() - from)} ms`);
  t.match([paid.code, JSON.parse(paid.stdout)], [0, { paid: true, amountPaid: "0.001" }]);
  const file = join(home, ".config", "purser", "config.json");
  t.equal(agent.savedIn, file);
  t.equal(statSync(file).mode & 0o777, 0o600);
  const other = await purser(["me"], { HOME: home, PURSER_URL: "http://127.0.0.1:9" });
  t.equal(other.code, 2, "the kept key goes to no other service");
});

t.test("an owner with a key file: other rules, no surprises", async (t) => {
  const privateKey = generatePrivateKey();
  const home = t.testdir({ "owner.key": `${privateKey}\n`, "wrong.key": "hello" });
  const friend = privateKeyToAddress(generatePrivateKey());
  const args = ["init", "--key-file", join(home, "owner.key"), "--allow", friend];
  const made = await purser(args, { HOME: home });
  t.equal(made.code, 0, made.stdout);
  const agent = JSON.parse(made.stdout) as Made;
  t.match(agent, { owner: privateKeyToAddress(privateKey), allowlist: [friend] });
  t.notOk(existsSync(join(home, ".config")), "nothing is kept unasked");
  const me = await new Purser({ apiKey: agent.apiKey, baseUrl }).me();
  t.match(me, { limits: { limit: "10" }, allowlist: [{ address: friend }], balance: "100" });
  const wrong = await purser(["init", "--key-file", join(home, "wrong.key")], { HOME: home });
  t.match([wrong.code, wrong.stdout], [2, /64 hexadecimal digits/]);
  const missing = await purser(["init", "--key-file", join(home, "none")], { HOME: home });
  t.match([missing.code, missing.stdout], [2, /none/]);
  t.notMatch(made.stdout + wrong.stdout, privateKey.slice(2));
});

/** In front of the service: changes what it answers, as a service that lies would. */
async function lying(t: Test, lies: Record<string, () => [number, object]>) {
  const bodies: string[] = [];
  const server = createServer((request, response) => {
    void (async () => {
      let sent = "";
      for await (const chunk of request) sent += String(chunk);
      bodies.push(sent);
      const { host: _host, connection: _connection, ...headers } = request.headers;
      const answer = await fetch(`${baseUrl}${request.url}`, {
        method: request.method ?? "GET",
        headers: { ...headers, origin: baseUrl } as unknown as Record<string, string>,
        ...(sent !== "" && { body: sent }),
      });
      const cookies = answer.headers.getSetCookie();
      const lie = lies[request.url ?? ""]?.();
      response.writeHead(lie?.[0] ?? answer.status, {
        "content-type": "application/json",
        ...(cookies.length > 0 && { "set-cookie": cookies }),
      });
      response.end(lie ? JSON.stringify(lie[1]) : await answer.text());
    })();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, bodies };
}

t.test("the owner's wallet signs the rules that were asked for, or nothing", async (t) => {
  const stranger = privateKeyToAddress(generatePrivateKey());
  const lies: [string, (order: Record<string, unknown>) => void][] = [
    ["the truth", () => {}],
    ["a higher limit", (order) => (order["dailyLimit"] = "999000000")],
    ["another payee", (order) => (order["payees"] = [{ ...PAYEE, payee: stranger }])],
    ["another name", (order) => (order["name"] = "Other")],
  ];
  const home = t.testdir({});
  for (const [name, lie] of lies) {
    const order = { ...ORDER };
    lie(order);
    const typedData = { domain: { chainId: 5042002 } };
    const service = await lying(t, {
      // Behind another origin the sign-in fails; what counts is what is signed after it.
      "/api/auth/verify": () => [200, { address: "0x" }],
      "/api/agents": () => [403, { code: "owner_signature_required", order, typedData }],
    });
    const env = { HOME: home, PURSER_URL: service.url };
    const error = await init({ name: "Mine", dailyLimit: "2", allow: [] }, env).then(
      () => undefined,
      (caught: Error) => caught,
    );
    const isSigned = /"authorization"/.test(service.bodies.join());
    t.equal(isSigned, name === "the truth", name);
    if (!isSigned) t.match(error?.message, /other rules than were asked for/);
  }
});

const PAYEE = { label: "", site: "", dailyLimit: "0", perPaymentLimit: "0", expiresAt: "0" };
const ORDER: Record<string, unknown> = {
  agent: "agt_1",
  wallet: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
  version: "1",
  name: "Mine",
  dailyLimit: "2000000",
  weeklyLimit: "0",
  monthlyLimit: "0",
  perPaymentLimit: "0",
  paymentsPerHour: "0",
  fetch: "any",
  expiresAt: "0",
  payees: [],
  nonce: `0x${"00".repeat(32)}`,
  deadline: "0",
};

t.test("a wrong URL is told at once", async (t) => {
  const from = performance.now();
  const run = await purser(["init"], { HOME: t.testdir({}), PURSER_URL: "http://127.0.0.1:9" });
  t.match([run.code, JSON.parse(run.stdout)], [1, { code: "not_reached" }]);
  t.ok(performance.now() - from < 3_000);
});

const owned = (await init(
  { name: "Connected" },
  { HOME: t.testdir({}), PURSER_URL: baseUrl },
)) as Made;
const silent: Terminal = { isInteractive: false, say: () => {}, ask: async () => false };

function connecting(home: string, more: Partial<ConnectOptions> = {}, terminal = silent) {
  const env = { HOME: home, PURSER_URL: baseUrl, AGENT_API_KEY: owned.apiKey };
  const all = CLIENTS.map(({ id }) => id);
  return connect({ only: all, yes: true, ...more }, env, terminal, "linux");
}

/** As text, so that comments count. */
const THEIRS = {
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

t.test("every program's own file, with all that was in it", async (t) => {
  const home = t.testdir(THEIRS);
  chmodSync(join(home, ".claude.json"), 0o640);
  const { connected, savedIn } = await connecting(home);
  t.same(
    connected.map(({ status }) => status),
    CLIENTS.map(() => "written"),
  );
  const stdio = { command: process.execPath, args: [String, "mcp"], env: { PURSER_URL: baseUrl } };
  t.match(JSON.parse(textOf(home, "claude-code")), {
    numStartups: 7,
    mcpServers: { other: { url: "https://o.example" }, purser: { type: "stdio", ...stdio } },
  });
  t.match(textOf(home, "claude-code"), /\n\t"numStartups"/, "indented as it was");
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
  t.equal(backups.length, 5, "of the five that were there");
  const kept = connected.find(({ client }) => client === "codex");
  t.equal(
    readFileSync(kept && "backup" in kept ? (kept.backup ?? "") : "", "utf8"),
    THEIRS[".codex"]["config.toml"],
  );
  for (const { file } of connected)
    t.notMatch(readFileSync(file, "utf8"), owned.apiKey, "the key is in none of them");
  t.equal(statSync(savedIn ?? "").mode & 0o777, 0o600);
  t.match(readFileSync(savedIn ?? "", "utf8"), owned.apiKey);

  const again = await connecting(home);
  t.same(
    again.connected.map(({ status }) => status),
    CLIENTS.map(() => "unchanged"),
    "the second time there is nothing to do",
  );
  t.equal(
    readdirSync(home, { recursive: true, encoding: "utf8" }).filter((name) =>
      /backup|tmp$/.test(name),
    ).length,
    backups.length,
  );

  t.test("and what was written in each starts the wallet", async (t) => {
    for (const { client: program, file } of connected) {
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

t.test("nothing is written unasked, nor where it would do harm", async (t) => {
  const home = t.testdir({
    ".cursor": { "mcp.json": "{ this is not JSON" },
    ".gemini": { "settings.json": '{"mcpServers": []}' },
    ".codex": { "config.toml": 'mcp_servers = { purser = { command = "inline" } }\n' },
    ".codeium": { windsurf: {} },
    dotfiles: { "claude.json": "{}" },
  });
  symlinkSync(join(home, "dotfiles", "claude.json"), join(home, ".claude.json"));
  const before = snapshot(home);
  await t.rejects(connecting(home, { yes: false }), /no terminal to ask on/);
  const shown: string[] = [];
  const showing = { ...silent, say: (line: string) => void shown.push(line) };
  await connecting(home, { print: true, yes: false }, showing);
  t.match(shown.join("\n"), /"mcpServers"/);
  t.notMatch(shown.join("\n"), owned.apiKey);
  const asked: string[] = [];
  const refusing = {
    isInteractive: true,
    say: () => {},
    ask: async (question: string) => (asked.push(question), false),
  };
  const declined = await connecting(home, { yes: false }, refusing);
  t.ok(asked.length > 0 && asked.every((question) => question.startsWith("Write this to /")));
  t.notOk(declined.connected.some(({ status }) => status === "written"));
  t.notOk(declined.savedIn);
  t.same(snapshot(home), before, "not a byte changed");
  const wrong = { HOME: home, PURSER_URL: baseUrl, AGENT_API_KEY: "purser_wrong" };
  const work = connect({ only: ["windsurf"], yes: true }, wrong, silent, "linux");
  await t.rejects(work, { code: "invalid_api_key" });
  t.same(snapshot(home), before, "a key that is none is not written down");
  await t.rejects(
    connecting(home, { only: ["emacs"] }),
    /no client emacs; name some of claude-code/,
  );

  const { connected } = await connecting(home);
  const of = (id: string) => connected.find(({ client }) => client === id);
  for (const id of ["cursor", "gemini", "codex"]) t.match(of(id), { status: "refused" }, id);
  t.equal(textOf(home, "cursor"), "{ this is not JSON");
  t.ok(lstatSync(join(home, ".claude.json")).isSymbolicLink(), "a linked file stays linked");
  t.match(readFileSync(join(home, "dotfiles", "claude.json"), "utf8"), /purser/);
});

t.test("by URL alone where the program signs in itself", async (t) => {
  const home = t.testdir({});
  const found = join(home, ".cursor");
  mkdirSync(found);
  const env = { HOME: home, PURSER_URL: baseUrl };
  const { connected } = await connect({ only: [], oauth: true, yes: true }, env, silent, "linux");
  t.match(connected, [{ client: "cursor", status: "written" }], "only what is on this machine");
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
    /there is no key/,
  );
  // The same on the other systems: only the places differ.
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

/** The entry of ours, wherever the program keeps its servers. */
function startOf(settings: unknown): Start | undefined {
  if (typeof settings !== "object" || settings === null) return undefined;
  for (const [name, value] of Object.entries(settings)) {
    if (name === "purser" && "command" in (value as object)) return value as Start;
    const found = startOf(value);
    if (found) return found;
  }
  return undefined;
}
