/** What an owner does from the command line: `purser init` creates an agent and funds it, `stop` and `resume` are for all agents. */
import { readFileSync } from "node:fs";
import { OwnerSession } from "./owner.ts";
import { PurserError } from "./problem.ts";
import { type Env, keepKey, readServiceSettings } from "./settings.ts";
import { sendRequest } from "./transport.ts";
import type { Listing } from "./types.ts";

interface InitOptions {
  name?: string;
  dailyLimit?: string;
  allow?: string[];
  keyFile?: string;
  /** USDC from the faucet of a local service. */
  fund?: string;
  /** Store URL and key in the user's configuration file. */
  save?: boolean;
}

interface LocalInfo {
  demoOwnerPrivateKey: string;
  faucetAmount: string;
}

const DEFAULTS = { name: "My agent", dailyLimit: "10" };

export async function init(options: InitOptions, env: Env): Promise<object> {
  const { url } = readServiceSettings(env);
  const local = await readLocal(url);
  if (options.fund !== undefined && !local)
    throw new Error(`${url} has no faucet: leave out --fund, and send USDC to the agent's wallet`);
  const owner = new OwnerSession(url, ownerKey(options, local, url));
  const allowlist = options.allow ?? (local ? await demoSellers(url) : []);
  await owner.signIn();
  const { name = DEFAULTS.name, dailyLimit = DEFAULTS.dailyLimit } = options;
  const { agent, apiKey } = await owner.createAgent({ name, dailyLimit, allowlist });
  // From here on nothing may throw, because the key is returned only this once. A session that is not signed
  // out expires by itself.
  await owner.signOut().catch(() => undefined);
  const { walletAddress } = agent;
  const funded = local
    ? await fund(url, walletAddress, options.fund ?? local.faucetAmount)
    : { funded: "0" };
  const saved = options.save === true ? save(env, { url, apiKey }) : {};
  return {
    url,
    owner: owner.address,
    agentId: agent.id,
    name,
    wallet: walletAddress,
    ...funded,
    dailyLimit,
    allowlist,
    apiKey,
    ...saved,
    next: [
      "The key is shown only once. Keep it secret.",
      ...(saved.savedIn === undefined ? [`export PURSER_URL=${url} AGENT_API_KEY=${apiKey}`] : []),
      ...(local ? [] : [`Send USDC to ${walletAddress} on the service's network.`]),
      "purser me, purser fetch <url>, purser connect",
    ],
  };
}

/** `purser stop` and `purser resume`, with the owner's wallet. */
export async function stopOrResume(
  command: "stop" | "resume",
  options: Pick<InitOptions, "keyFile">,
  env: Env,
): Promise<object> {
  const { url } = readServiceSettings(env);
  const owner = new OwnerSession(url, ownerKey(options, await readLocal(url), url));
  await owner.signIn();
  try {
    const { address } = owner;
    if (command === "stop")
      return { url, owner: address, stopped: await owner.stop(), next: ["purser resume"] };
    return { url, owner: address, stopped: null, resumedAgents: await owner.resume() };
  } finally {
    await owner.signOut().catch(() => undefined);
  }
}

const readLocal = (url: string): Promise<LocalInfo | undefined> =>
  read(url, "/api/local/info", "demoOwnerPrivateKey");

function save(
  env: Env,
  settings: { url: string; apiKey: string },
): { savedIn?: string; saveFailed?: string } {
  try {
    return { savedIn: keepKey(env, settings, { asCurrent: true }) };
  } catch (error) {
    return { saveFailed: (error as Error).message };
  }
}

function ownerKey(
  { keyFile }: InitOptions,
  local: LocalInfo | undefined,
  url: string,
): `0x${string}` {
  const text = keyFile === undefined ? local?.demoOwnerPrivateKey : readKeyFile(keyFile);
  if (text === undefined)
    throw new Error(`${url} has no demo wallet: pass --key-file with the owner's private key`);
  const [, digits] = /^(?:0x)?([0-9a-fA-F]{64})$/.exec(text.trim()) ?? [];
  if (digits === undefined) throw new Error("--key-file must contain 64 hexadecimal digits");
  return `0x${digits}`;
}

function readKeyFile(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw new Error(
      `--key-file ${path} cannot be read (${(cause as NodeJS.ErrnoException).code})`,
      {
        cause,
      },
    );
  }
}

/** The service lists its demo sellers shortly after it starts, so the list is polled. */
const POLL_EVERY_MS = 200;
const POLL_FOR_MS = 10_000;

/** The payees that a new agent of a local service may pay: the service's own paid endpoints. */
async function demoSellers(url: string): Promise<string[]> {
  const untilMs = Date.now() + POLL_FOR_MS;
  for (;;) {
    const page = await read<{ items: Listing[] }>(url, "/api/listings?limit=100", "items");
    const builtIn = page?.items.filter(({ source }) => source === "built-in") ?? [];
    if (builtIn.length > 0 || Date.now() >= untilMs)
      return [...new Set(builtIn.map(({ payTo }) => payTo))];
    await new Promise((resolve) => setTimeout(resolve, POLL_EVERY_MS));
  }
}

async function fund(
  url: string,
  address: string,
  amount: string,
): Promise<{ funded: string; fundingFailed?: string }> {
  const request = { method: "POST", path: "/api/local/faucet", body: { address, amount } };
  const answer = await sendRequest<{ amount: string }>(fetch, url, {
    ...request,
    ...plain("amount"),
  });
  return answer.kind === "success"
    ? { funded: answer.value.amount }
    : { funded: "0", fundingFailed: answer.problem.detail };
}

/** Undefined where the service has no such route. */
async function read<T extends object>(
  url: string,
  path: string,
  member: string,
): Promise<T | undefined> {
  const answer = await sendRequest<T>(fetch, url, {
    method: "GET",
    path,
    body: undefined,
    ...plain(member),
  });
  if (answer.kind === "success") return answer.value;
  if (answer.kind === "problem" && answer.problem.status === 404) return undefined;
  throw new PurserError(answer.problem);
}

const plain = (member: string) => ({ headers: {}, member, signal: AbortSignal.timeout(30_000) });
