/** The doctor's check of what screens addresses: the list, as this machine reads it, or the service. */
import type { Config } from "../config.ts";
import { load } from "../plugins/screening/file.ts";
import { ask, outboundTo } from "../plugins/screening/service.ts";
import { durationOf, found, ok, wrong, type Finding } from "./finding.ts";

export async function checkScreening({ screening, timings }: Config): Promise<Finding[]> {
  if (!screening) return [];
  const effect = screening.isOpen
    ? "Until then addresses are not screened (SCREENING_FAILS=open)."
    : "Until then payments are refused (SCREENING_FAILS=closed).";
  const { file, url } = screening;
  if (url === undefined)
    return found("screening", () => checkFile(file ?? "", screening.maxAgeSeconds, effect), {
      todo: `Correct SCREENING_FILE. A replica that runs keeps its last good list, and none starts. ${effect}`,
    });
  const outbound = outboundTo(url);
  try {
    return await found(
      "screening",
      async () => {
        const { screeningAnswerMs: answerMs } = timings;
        await ask({ url, token: screening.token, outbound, answerMs }, []);
        return ok("screening", "the service answers");
      },
      { todo: `Check SCREENING_URL and SCREENING_TOKEN. ${effect}` },
    );
  } finally {
    await outbound.close();
  }
}

async function checkFile(
  path: string,
  maxAgeSeconds: number | undefined,
  effect: string,
): Promise<Finding> {
  const { addresses, date } = await load(path, Date.now());
  const ageSeconds = Math.max(0, (Date.now() - date.getTime()) / 1_000);
  const says = `${addresses.size} addresses, ${durationOf(ageSeconds)} old`;
  return maxAgeSeconds !== undefined && ageSeconds > maxAgeSeconds
    ? wrong("screening", `${says}: older than SCREENING_MAX_AGE`, `Replace the list. ${effect}`)
    : ok("screening", says);
}
