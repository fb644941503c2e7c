/** `npm run operator`: an operator's manual actions on a running service, each recorded in the operators' audit. */
import type { parseArgs } from "node:util";
import { ConfigError, loadConfig, type Config } from "../../config.ts";
import { readArguments, runAsProgram, UsageError } from "../../infra/command-line.ts";
import { createPool, explainOutage } from "../../infra/db/pool.ts";
import { createPrisma, type PrismaClient } from "../../infra/db/prisma.ts";
import { BUILD, VERSION } from "../../infra/version.ts";
import { lastOperatorActs, type OperatorEntry } from "../audit/operators.ts";
import { closeDifferences, readAgain } from "./operator-actions.ts";

const USAGE = `npm run operator -- log | heal-difference | read-again [--dry-run]

  log [--last 20]
      this build, and who did what
  heal-difference --network <id> --kind <kind> [--key <key>] --why <text>
      closes a difference that was investigated
  read-again --network <id> --from-block <number> --why <text>
      reconciliation reads the chain again from there

  --dry-run   reports what would be done, and changes nothing

Runs with the environment of a replica. OPERATOR in it names you, next to the system's user and host.`;

const OPTIONS = {
  network: { type: "string" },
  kind: { type: "string" },
  key: { type: "string" },
  "from-block": { type: "string" },
  why: { type: "string" },
  last: { type: "string" },
  "dry-run": { type: "boolean" },
} as const;

type Values = ReturnType<typeof parseArgs<{ options: typeof OPTIONS }>>["values"];
type Print = (line: string) => void;
interface Work {
  prisma: PrismaClient;
  config: Config;
  values: Values;
  say: Print;
}

const wrong = (problem: string): UsageError => new UsageError(problem);

/** Thrown to roll back after a dry run. */
class ReadOnly extends Error {}

const COMMANDS: Readonly<Record<string, (work: Work) => Promise<void>>> = {
  async log({ prisma, values, say }) {
    const take = Number(values.last ?? "20");
    if (!Number.isSafeInteger(take) || take < 1) throw wrong("--last must be a number of entries");
    const builtAt = BUILD.builtAt === null ? "not compiled" : `built at ${BUILD.builtAt}`;
    say(`Purser ${VERSION}, commit ${BUILD.commit}, ${builtAt}`);
    for (const entry of (await lastOperatorActs(prisma, { take })).toReversed()) say(lineOf(entry));
  },

  async "heal-difference"(work) {
    const { prisma, config, values, say } = work;
    const network = networkOf(work);
    const { kind, key } = values;
    if (kind === undefined) throw wrong("heal-difference needs --kind, as shown in the alarm");
    const why = whyOf(values);
    await prisma.$transaction(async (tx) => {
      const done = await closeDifferences(tx, network, { kind, key, why, by: config });
      if ("refused" in done) throw wrong(done.refused);
      for (const each of done.closed)
        say(`${kind} ${each.key}${each.agentId ? ` (${each.agentId})` : ""}`);
      if (values["dry-run"]) throw new ReadOnly();
      say(`${done.closed.length} closed.`);
    });
  },

  async "read-again"(work) {
    const { prisma, config, values, say } = work;
    const network = networkOf(work);
    const from = values["from-block"] ?? "";
    if (!/^\d{1,18}$/.test(from)) throw wrong("read-again needs --from-block, a block's number");
    const why = whyOf(values);
    await prisma.$transaction(async (tx) => {
      const done = await readAgain(tx, network, { fromBlock: BigInt(from), why, by: config });
      if ("refused" in done) throw wrong(done.refused);
      say(`${network.id}: reading again from block ${from} (was at ${done.wasAt}).`);
      if (values["dry-run"]) throw new ReadOnly();
    });
  },
};

function networkOf({ config, values }: Work): Config["networks"][number] {
  const found = config.networks.find(({ id }) => id === values.network);
  if (found) return found;
  const known = config.networks.map(({ id }) => id).join(", ");
  throw wrong(`--network must be one of ${known}`);
}

/** The reason must be understandable for later readers of the record. */
function whyOf({ why }: Values): string {
  if (why === undefined || why.trim() === "" || why.length > 500)
    throw wrong("--why must give the reason in a sentence (at most 500 characters)");
  return why;
}

function lineOf({ seq, at, who, action, what }: OperatorEntry): string {
  const { salt: _salt, values: _values, ...shown } = what;
  const person = who.wallet ?? who.operator;
  const name = person === null ? who.user : `${person} (${who.user})`;
  return `${seq} ${at} ${name}@${who.host} ${action} ${JSON.stringify(shown)}`;
}

/** Runs one command. */
export async function operate(
  args: string[],
  environment: Record<string, string | undefined>,
  say: Print,
): Promise<void> {
  const { values, positionals } = readArguments(args, USAGE, OPTIONS, { atMost: 1 });
  const run = COMMANDS[positionals[0] ?? ""];
  if (!run)
    throw wrong(`operator needs one command: ${Object.keys(COMMANDS).join(", ")}. See --help.`);
  const config = loadConfig(environment);
  if (config.databaseUrl === undefined) throw wrong("operator needs DATABASE_URL");
  const pool = createPool(config.databaseUrl, {
    maxConnections: 2,
    applicationName: "purser-operator",
  });
  const prisma = createPrisma(pool);
  try {
    await run({ prisma, config, values, say });
  } catch (error) {
    if (!(error instanceof ReadOnly)) throw error;
    say("Nothing was changed (--dry-run).");
  } finally {
    await prisma.$disconnect();
    await pool.end();
  }
}

await runAsProgram(
  import.meta.url,
  () => operate(process.argv.slice(2), process.env, (line) => console.log(line)),
  { ours: (error) => error instanceof ConfigError, explain: explainOutage },
);
