/** Screening of addresses, for operators who must. Off unless it is configured. */
import fp from "fastify-plugin";
import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Address } from "viem";
import { Counter, Gauge } from "prom-client";
import { ConfigError } from "../../config.ts";
import { ApiError } from "../../errors.ts";
import { noteAudit } from "../audit/store.ts";
import { actorOf } from "../auth/index.ts";
import { FileList } from "./file.ts";
import { Screening } from "./screening.ts";
import { outboundTo, ScreeningService } from "./service.ts";
import { ScreeningFailed, type ScreeningSource } from "./source.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Undefined: addresses are not screened. */
    screening: Screening | undefined;
  }
}

export default fp(
  async (app) => {
    const { config, prisma, log } = app;
    if (!config.screening) {
      app.decorate("screening", undefined);
      return;
    }
    const source = await sourceOf(app);
    app.addHook("onClose", () => source.close());
    const asked = new Counter({
      name: "purser_screening_total",
      help: "Addresses that were refused, or could not be screened, by place and outcome",
      labelNames: ["place", "outcome"],
      registers: [app.metrics],
    });
    if (source.ageSeconds) showAge(app, source.ageSeconds.bind(source));
    app.decorate(
      "screening",
      new Screening({
        source,
        isOpen: config.screening.isOpen,
        count: (labels) => asked.inc(labels),
        ownerOf: async (id) => {
          const select = { owner: { select: { address: true } } };
          const agent = await prisma.agent.findUnique({ where: { id }, select });
          return agent?.owner.address as Address | undefined;
        },
        nowMs: () => performance.now(),
        log,
      }),
    );
    noteRefusals(app);
  },
  { name: "screening" },
);

async function sourceOf(app: FastifyInstance): Promise<ScreeningSource> {
  const { config, log } = app;
  const { screeningLookMs: lookMs, screeningAnswerMs, screeningFreshMs } = config.timings;
  const { file: path, url, token, maxAgeSeconds } = config.screening ?? {};
  if (url !== undefined)
    return new ScreeningService({
      url,
      token,
      outbound: outboundTo(url),
      answerMs: screeningAnswerMs,
      freshMs: screeningFreshMs,
      nowMs: () => performance.now(),
    });
  if (path === undefined) throw new Error("screening has neither a file nor a service");
  try {
    return await FileList.open({ path, maxAgeSeconds, lookMs, nowMs: () => Date.now(), log });
  } catch (error) {
    if (!(error instanceof ScreeningFailed)) throw error;
    throw new ConfigError([`SCREENING_FILE names ${path}, and ${error.message}`]);
  }
}

function showAge(app: FastifyInstance, ageSeconds: () => number): void {
  const age: Gauge = new Gauge({
    name: "purser_screening_list_age_seconds",
    help: "The age of the list of screened addresses",
    registers: [app.metrics],
    collect: () => age.set(ageSeconds()),
  });
}

const REFUSALS: ReadonlySet<string> = new Set(["payee_screened", "account_screened"]);

/** A refusal that concerns an owner is in the owner's audit; third parties are only counted. */
function noteRefusals(app: FastifyInstance): void {
  app.addHook("onError", async (request, _reply, error) => {
    if (!(error instanceof ApiError) || !REFUSALS.has(error.code)) return;
    const who = whoIn(request);
    if (!who) return;
    const { url: route = "" } = request.routeOptions;
    const after = { code: error.code, method: request.method, route };
    const action = "screening.refused";
    await noteAudit(app.prisma, {
      ...who,
      action,
      before: null,
      after,
      requestId: request.id,
    }).catch((err: unknown) => app.log.error({ err }, "a refusal was not recorded in the audit"));
  });
}

function whoIn({ owner, agent }: FastifyRequest) {
  const isAgent = agent as unknown;
  if (isAgent) return { ownerId: agent.ownerId, agentId: agent.id, actor: agent.walletAddress };
  const isOwner = owner as unknown;
  return isOwner ? { ownerId: owner.id, agentId: null, actor: actorOf(owner) } : undefined;
}
