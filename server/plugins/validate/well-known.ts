/** What the host of a paid API says about all its paid URLs: `/.well-known/x402`, read as the marketplace reads it. */
import { plainWords } from "../../core/foreign-text.ts";
import type { OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { Finding, WellKnownOutcome } from "../../schemas/validate.ts";
import { readWellKnown, WELL_KNOWN, WELL_KNOWN_LIMITS } from "../discovery/well-known.ts";
import { finding } from "./causes.ts";
import type { Send } from "./exchange.ts";

export interface WellKnownCheck {
  wellKnown: WellKnownOutcome;
  findings: Finding[];
}

/** A document with many faults shows the first ones. */
const MOST_PROBLEMS = 5;

export async function checkWellKnown(
  send: Send,
  asked: URL,
  timeoutMs: number,
): Promise<WellKnownCheck> {
  const url = new URL(WELL_KNOWN, asked);
  const response = await send({ url, ...WELL_KNOWN_LIMITS, timeoutMs }).catch(() => undefined);
  if (!response || isMissing(response))
    return { wellKnown: missing, findings: [finding("well_known_missing", WELL_KNOWN)] };
  const where = (place: string): string => `${WELL_KNOWN}: ${place}`;
  if (response.status !== 200) {
    const found = String(response.status);
    const because = "It must be served with status 200 and without a payment.";
    return {
      wellKnown: { outcome: "broken", resources: 0 },
      findings: [finding("well_known_broken", where("status"), { because, found })],
    };
  }
  const { resources, problems, more } = readWellKnown(response.body.toString("utf8"), url);
  const findings = problems.slice(0, MOST_PROBLEMS).map(({ kind, because, found, ...problem }) => {
    const code = kind === "broken" ? "well_known_broken" : "well_known_other_host";
    return finding(code, where(problem.where), { because, found });
  });
  const isNamed = resources.some((resource) => isSameResource(resource.url, asked));
  if (!isNamed && more === 0 && resources.length > 0) {
    const fix = `"${plainWords(`${asked.origin}${asked.pathname}`, 300)}"`;
    findings.push(finding("well_known_omits", where("resources"), { fix }));
  }
  if (more > 0) findings.push(finding("well_known_long", where("resources")));
  const outcome = problems.some(({ kind }) => kind === "broken") ? "broken" : "found";
  return { wellKnown: { outcome, resources: resources.length }, findings };
}

const missing: WellKnownOutcome = { outcome: "missing", resources: 0 };

/** Web apps answer any path with their page. */
const isMissing = ({ status, headers }: OutboundResponse): boolean =>
  [404, 405, 410].includes(status) ||
  (status === 200 && String(headers["content-type"]).startsWith("text/html"));

const isSameResource = (named: URL, asked: URL): boolean =>
  named.pathname === asked.pathname && (named.search === "" || named.search === asked.search);
