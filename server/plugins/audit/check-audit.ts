/**
 * `node check-audit.mjs purser-audit.jsonl [<seq>:<hash> ...]`: checks the export of an audit, against heads noted earlier.
 * docs/how-to/check-audit.mjs is made of this by `npm run derive`, for those who have nothing else of this service.
 */
import { readHead, verifyFile } from "./check-file.ts";

const [path, ...heads] = process.argv.slice(2);
const noted = heads.flatMap((text) => readHead(text) ?? []);
if (path === undefined || noted.length < heads.length) {
  console.error("node check-audit.mjs <export> [<seq>:<hash of 64 hex digits> ...]");
  process.exitCode = 2;
} else if (!(await verifyFile(path, noted, (line) => console.log(line)))) process.exitCode = 1;
