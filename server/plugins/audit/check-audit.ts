/**
 * `node check-audit.mjs purser-audit.jsonl [<seq>:<hash> ...]`: verifies an audit export against heads that were
 * recorded earlier. `npm run derive` generates docs/how-to/check-audit.mjs from it, for people who have nothing else of
 * this service.
 */
import { readHead, verifyFile } from "./check-file.ts";

const [path, ...heads] = process.argv.slice(2);
const noted = heads.flatMap((text) => readHead(text) ?? []);
if (path === undefined || noted.length < heads.length) {
  console.error("node check-audit.mjs <export> [<seq>:<hash of 64 hex digits> ...]");
  process.exitCode = 2;
} else if (!(await verifyFile(path, noted, (line) => console.log(line)))) process.exitCode = 1;
