// The resources of a run in one temporary folder: a Postgres (each test world clones a template database in
// it), the unpacked browser, and the error codes that were produced. The folder is empty at the start and
// deleted at the end.
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ROOT } from "../../server/local/bootstrap.mjs";

/**
 * @param {boolean} withPostgres
 * @param {(env: Record<string, string>) => Promise<void>} use
 */
export async function withWorld(withPostgres, use) {
  const dir = mkdtempSync(join(tmpdir(), "purser-test-"));
  const codes = join(dir, "codes");
  mkdirSync(codes);
  // Inside the repository, so that compiled files find the packages.
  mkdirSync(join(ROOT, ".tmp"), { recursive: true });
  const compiled = mkdtempSync(join(ROOT, ".tmp", "tests-"));
  let postgres;
  try {
    if (withPostgres) postgres = await startTestPostgres(dir);
    await use({
      PURSER_TEST_DIR: dir,
      PURSER_TEST_CODES_DIR: codes,
      PURSER_TEST_COMPILED: compiled,
      ...(postgres && { PURSER_TEST_POSTGRES_URL: postgres.adminUrl }),
    });
  } finally {
    await postgres?.stop();
    rmSync(compiled, { recursive: true, force: true });
    rmSync(dir, { recursive: true, force: true });
  }
}

async function startTestPostgres(dir) {
  const { register } = await import("tsx/esm/api");
  register();
  const { startPostgres } = await import("../../server/local/postgres.ts");
  return startPostgres({
    dir,
    password: randomBytes(12).toString("hex"),
    durable: false,
    maxConnections: 400,
    removeOnExit: dir,
  });
}
