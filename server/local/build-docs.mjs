// Builds the documentation after `npm start`, at low priority. Nothing depends on it: a failure is one line in the log.
import { constants, setPriority } from "node:os";
import { BootstrapError, prepareDocs } from "./bootstrap.mjs";

setPriority(constants.priority.PRIORITY_LOW);
// The service holds the other end of this pipe. When it closes, SIGTERM also stops the tool that is running for us.
process.stdin
  .on("close", () => process.kill(process.pid, "SIGTERM"))
  .resume()
  .unref();
try {
  await prepareDocs(() => undefined);
} catch (error) {
  if (!(error instanceof BootstrapError)) throw error;
  console.error(`${error.message}\n${error.details}`);
  process.exitCode = 1;
}
