// `npm run reset`: deletes the local data (database, chain, keys), so that the next start begins from scratch.
import { existsSync, readdirSync, rmdirSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { holderOf } from "./local/data-dir-lock.mjs";
import { endOrphan } from "./local/processes.mjs";

/** Only files that Purser itself creates: DATA_DIR may be a folder with other contents. */
const OURS = /^(lock(\..+)?|secrets\.json(\.new)?|postgres(\..+)?|chain|tools(\.new)?|anvil\..+)$/;

const [, , unknown] = process.argv;
if (unknown !== undefined) {
  console.log(
    "npm run reset\n\nDeletes the local data (database, chain, keys) in DATA_DIR (.data). It takes no arguments.",
  );
  process.exit(unknown === "--help" ? 0 : 2);
}

const dataDir = resolve(process.env.DATA_DIR || ".data");

if (!existsSync(dataDir)) {
  console.log(`Nothing to reset: there is no ${dataDir}.`);
} else {
  const holder = holderOf(dataDir);
  if (holder !== null) {
    console.error(`Purser is running on ${dataDir} (process ${holder}). Stop it first.`);
    process.exit(1);
  }
  await reset();
}

async function reset() {
  try {
    // Orphans of a start that was killed together with their wardens.
    await endOrphan(join(dataDir, "postgres.pid"), "SIGINT");
    await endOrphan(join(dataDir, "chain", "anvil.pid"), "SIGTERM");
    for (const name of readdirSync(dataDir).filter((entry) => OURS.test(entry)))
      rmSync(join(dataDir, name), { recursive: true, force: true });
    if (readdirSync(dataDir).length === 0) rmdirSync(dataDir);
    console.log(`Deleted the local data in ${dataDir}. \`npm start\` creates new data.`);
  } catch (error) {
    console.error(
      `The local data in ${dataDir} could not be deleted: ${/** @type {Error} */ (error).message}`,
    );
    process.exit(1);
  }
}
