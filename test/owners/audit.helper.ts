// Audit exports with the changes of a forger, and the documented script with which third parties check them.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Test } from "tap";
import type { PrismaClient } from "../../server/infra/db/prisma.ts";
import { verifyDatabase } from "../../server/plugins/audit/verify-cli.ts";
import { readLine, type ChainRow } from "../../server/plugins/audit/verify.ts";

const SCRIPT = fileURLToPath(new URL("../../docs/how-to/check-audit.mjs", import.meta.url));

export const rowsOf = (text: string): ChainRow[] =>
  text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const row = readLine(line);
      if (!row) throw new Error(`not a line of an export: ${line}`);
      return row;
    });

/** Recomputes the hash chain from this row on. */
export const rehash = (rows: ChainRow[], from: number): ChainRow[] => {
  let prevHash = rows[from - 1]?.hash ?? "0".repeat(64);
  return rows.map((row, index) => {
    if (index < from) return row;
    const hash = createHash("sha256").update(Buffer.from(prevHash, "hex")).update(row.body);
    const linked = { ...row, prevHash, hash: hash.digest("hex") };
    prevHash = linked.hash;
    return linked;
  });
};

/** Runs the script of the how-to page in its own process. */
export async function documentedScript(t: Pick<Test, "teardown">) {
  const folder = await mkdtemp(join(tmpdir(), "purser-audit-"));
  t.teardown(() => rm(folder, { recursive: true }));
  let number = 0;
  return async (rows: ChainRow[], ...noted: { seq: number; hash: string }[]) => {
    number += 1;
    const file = join(folder, `${number}.jsonl`);
    await writeFile(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
    const heads = noted.map(({ seq, hash }) => `${seq}:${hash}`);
    const run = promisify(execFile)(process.execPath, [SCRIPT, file, ...heads]);
    return run.then(
      ({ stdout }) => ({ code: 0, output: stdout }),
      (error: { code: number; stdout: string; stderr: string }) => ({
        code: error.code,
        output: error.stdout + error.stderr,
      }),
    );
  };
}

/** The audits of all owners in this database are valid. */
export async function assertAuditsHold(t: Test, prisma: PrismaClient): Promise<void> {
  const output: string[] = [];
  const options = { owner: undefined, noted: [] };
  const isValid = await verifyDatabase(prisma, options, (line) => output.push(line));
  const failed = output.filter((line) => line.startsWith("FAILED")).join("; ");
  t.ok(isValid, failed || "every audit chain is valid");
}
