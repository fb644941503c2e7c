/**
 * The operator's screening service: `POST {"addresses": [...]}` is answered by `{"blocked": [...]}`, which names some of
 * those addresses. Whatever else it answers counts as no answer.
 */
import { isRecord } from "../../core/foreign-text.ts";
import { Outbound } from "../../infra/outbound/outbound.ts";
import { VERSION } from "../../infra/version.ts";
import { ScreeningFailed, type ScreeningSource } from "./source.ts";

interface ServiceOptions {
  url: string;
  token: string | undefined;
  outbound: Pick<Outbound, "request" | "close">;
  answerMs: number;
  freshMs: number;
  nowMs: () => number;
}

/** Without redirects, with limits of time and size; to this one origin, which the operator chose. */
export const outboundTo = (url: string): Outbound =>
  new Outbound({
    isHttpAllowed: false,
    privateOrigins: [new URL(url).origin],
    userAgent: `Purser/${VERSION}`,
  });

const MAX_ANSWER_BYTES = 64 * 1024;
/** Of known answers, and of questions at a time. */
const MOST_KNOWN = 10_000;
const MOST_ASKED = 128;

export class ScreeningService implements ScreeningSource {
  readonly #options: ServiceOptions;
  /** The oldest first. */
  readonly #known = new Map<string, { isBlocked: boolean; untilMs: number }>();
  readonly #asked = new Map<string, Promise<ReadonlySet<string>>>();

  constructor(options: ServiceOptions) {
    this.#options = options;
  }

  async blockedAmong(addresses: readonly string[]): Promise<readonly string[]> {
    const nowMs = this.#options.nowMs();
    const known = addresses.map((address) => ({ address, answer: this.#known.get(address) }));
    const isFresh = ({ answer }: (typeof known)[number]): boolean =>
      answer !== undefined && answer.untilMs > nowMs;
    const unknown = known.filter((one) => !isFresh(one)).map(({ address }) => address);
    const asked = unknown.length > 0 ? await this.#ask(unknown) : undefined;
    return known
      .filter((one) =>
        isFresh(one) ? one.answer?.isBlocked === true : asked?.has(one.address) === true,
      )
      .map(({ address }) => address);
  }

  close(): Promise<void> {
    return this.#options.outbound.close();
  }

  /** One request for the same question at the same time. */
  #ask(addresses: readonly string[]): Promise<ReadonlySet<string>> {
    const question = [...addresses].sort().join(" ");
    const asked = this.#asked.get(question);
    if (asked) return asked;
    if (this.#asked.size >= MOST_ASKED)
      return Promise.reject(new ScreeningFailed("too many questions are unanswered"));
    const asking = this.#send(addresses).finally(() => void this.#asked.delete(question));
    this.#asked.set(question, asking);
    return asking;
  }

  async #send(addresses: readonly string[]): Promise<ReadonlySet<string>> {
    const { nowMs, freshMs } = this.#options;
    const blocked = await ask(this.#options, addresses);
    const untilMs = nowMs() + freshMs;
    for (const address of addresses) {
      // Added again at the end, where the newest are.
      this.#known.delete(address);
      this.#known.set(address, { isBlocked: blocked.has(address), untilMs });
    }
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= MOST_KNOWN) break;
      this.#known.delete(oldest);
    }
    return blocked;
  }
}

/** Throws ScreeningFailed unless the service answered this question. */
export async function ask(
  { url, token, outbound, answerMs }: Omit<ServiceOptions, "freshMs" | "nowMs">,
  addresses: readonly string[],
): Promise<ReadonlySet<string>> {
  const response = await outbound
    .request({
      url,
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "application/json",
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
      },
      body: JSON.stringify({ addresses }),
      timeoutMs: answerMs,
      maxBytes: MAX_ANSWER_BYTES,
    })
    .catch((cause: unknown) => {
      throw new ScreeningFailed(`no answer (${(cause as Error).message})`, { cause });
    });
  if (response.status !== 200) throw new ScreeningFailed(`it answered ${response.status}`);
  return blockedIn(response.body.toString("utf8"), addresses);
}

function blockedIn(text: string, addresses: readonly string[]): ReadonlySet<string> {
  const blocked = listIn(text);
  if (!blocked) throw new ScreeningFailed('it did not answer {"blocked": [...]}');
  const found = new Set(blocked.map((address) => String(address).toLowerCase()));
  for (const address of found)
    if (!addresses.includes(address))
      throw new ScreeningFailed("it named an address that it was not asked for");
  return found;
}

function listIn(text: string): unknown[] | undefined {
  try {
    const answer: unknown = JSON.parse(text);
    const blocked = isRecord(answer) ? answer["blocked"] : undefined;
    return Array.isArray(blocked) ? blocked : undefined;
  } catch {
    return undefined;
  }
}
