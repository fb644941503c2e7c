/** `npm run audit:verify`: recomputes hash chains of the audit and every signature in them. */
import { readArguments, runAsProgram } from "../../infra/command-line.ts";
import { createPool, explainOutage } from "../../infra/db/pool.ts";
import { createPrisma, type Db } from "../../infra/db/prisma.ts";
import { ConfigError, loadConfig } from "../../config.ts";
import { namingOrders, ownersWithAudit, readChain, readHead as readOwnersHead } from "./store.ts";
import { readOperatorHead, readOperators } from "./operators.ts";
import { readHead, report, verifyFile, type Print } from "./check-file.ts";
import { verifyChain, verifyOperators, type ChainHead, type Verdict } from "./verify.ts";

const USAGE = `npm run audit:verify -- [FILE] [--owner <id or address>] [--operators] [--head <seq>:<hash>]...

Checks the chains of all owners and of the operators, in the database of DATABASE_URL.

  FILE                  an export of the app instead; needs no database
  --owner <id>          only this owner's chain, by id or address
  --operators           only what operators did
  --head <seq>:<hash>   an end of the chain that you noted elsewhere; a chain that was cut or rewritten lacks it

The exit code is 1 if a chain is not valid.`;

/** Reports each chain; returns false if one is not valid. */
export async function verifyDatabase(
  db: Db,
  { owner, noted }: { owner: string | undefined; noted: ChainHead[] },
  say: Print,
): Promise<boolean> {
  const owners = await ownersWithAudit(db, owner);
  if (owner !== undefined && owners.length === 0) {
    say(`FAILED: no owner ${owner} has an audit here`);
    return false;
  }
  if (noted.length > 0 && owners.length > 1)
    throw new ConfigError(["--head needs --owner: each owner has a chain of its own"]);
  let isWhole = true;
  for (const { id, address } of owners) {
    // Read before the rows, so that entries appended meanwhile do not count as missing.
    const naming = await namingOrders(db, id);
    const head = await readOwnersHead(db, id);
    const chain = await verifyChain(readChain(db, id, 0n), [head, ...noted]);
    const verdict = withoutStrays(chain, naming);
    isWhole = report(`${address} (${id})`, verdict, say) && isWhole;
  }
  return isWhole;
}

/** An order whose row was written without its entry: with the triggers disabled, the chain alone does not show it. */
function withoutStrays(chain: Verdict, naming: { kind: string; digest: string }[]): Verdict {
  const stray = chain.ok && naming.find(({ digest }) => !chain.signed.has(digest));
  if (!stray) return chain;
  const why = `is missing: the order ${stray.kind} ${stray.digest} is stored and has no entry`;
  return { ok: false, seq: chain.head.seq + 1, why };
}

export async function verifyOperatorChain(
  db: Db,
  noted: ChainHead[],
  say: Print,
): Promise<boolean> {
  const head = await readOperatorHead(db);
  return report("operators", await verifyOperators(readOperators(db), [head, ...noted]), say);
}

function readHeadArgument(text: string): ChainHead {
  const head = readHead(text);
  if (!head) throw new ConfigError([`--head is <seq>:<hash of 64 hex digits>, not ${text}`]);
  return head;
}

async function main(): Promise<boolean> {
  const { values, positionals } = readArguments(
    process.argv.slice(2),
    USAGE,
    {
      owner: { type: "string" },
      operators: { type: "boolean" },
      head: { type: "string", multiple: true },
    },
    { atMost: 1 },
  );
  const noted = (values.head ?? []).map(readHeadArgument);
  const say = (line: string): void => console.log(line);
  const [path] = positionals;
  if (path !== undefined) return verifyFile(path, noted, say);
  const { databaseUrl } = loadConfig(process.env);
  if (databaseUrl === undefined)
    throw new ConfigError(["audit:verify needs DATABASE_URL, or the path of an export"]);
  const pool = createPool(databaseUrl, { maxConnections: 2, applicationName: "purser-audit" });
  try {
    const db = createPrisma(pool);
    const { owner, operators } = values;
    if (operators === true) return await verifyOperatorChain(db, noted, say);
    const areWhole = await verifyDatabase(db, { owner, noted }, say);
    if (owner !== undefined || noted.length > 0) return areWhole;
    return (await verifyOperatorChain(db, [], say)) && areWhole;
  } finally {
    await pool.end();
  }
}

await runAsProgram(
  import.meta.url,
  async () => {
    if (!(await main())) process.exitCode = 1;
  },
  { ours: (error) => error instanceof ConfigError, explain: explainOutage },
);
