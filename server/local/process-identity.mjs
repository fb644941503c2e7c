// Tells one process from a later one that was given the same id: the start time, read from the system.
// A pid alone proves nothing after a power cut.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

/**
 * @param {number | undefined} pid
 * @returns {string | null} null when no such process runs
 */
export function identityOf(pid) {
  if (!pid) return null;
  try {
    if (process.platform === "linux") return linuxIdentity(pid);
    const started = execFileSync("ps", ["-p", String(pid), "-o", "lstart="], {
      stdio: ["ignore", "pipe", "ignore"],
      encoding: "utf8",
    }).trim();
    return started === "" ? null : started;
  } catch {
    return null;
  }
}

function linuxIdentity(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The second field is the command in parentheses and may hold spaces: count from the last parenthesis.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, startTicks] = [fields[0], fields[19]];
  if (state === "Z" || state === "X") return null;
  const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  return `${boot}:${startTicks}`;
}
