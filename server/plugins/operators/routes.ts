/** The operators' page over HTTP: default deny by its credential, which answers 404 to everybody else. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { GAS_SHARES } from "../../core/gas.ts";
import { invalidCursor, readPage } from "../../core/paging.ts";
import { memoFor } from "../../core/shared-answers.ts";
import { databaseNow } from "../../infra/db/prisma.ts";
import { PageQuery } from "../../schemas/common.ts";
import {
  CloseDifferenceBody,
  OperatorAccounts,
  OperatorChecks,
  OperatorConfiguration,
  OperatorDeliveries,
  OperatorDifferences,
  OperatorDone,
  OperatorMerchants,
  OperatorOverview,
  OperatorRecord,
  ReadAgainBody,
} from "../../schemas/operators.ts";
import { lastOperatorActs } from "../audit/operators.ts";
import { closeDifferences, readAgain } from "../reconciliation/operator-actions.ts";
import { countOpenDifferences } from "../reconciliation/store.ts";
import { readGasAccounts } from "../settlement/gas-store.ts";
import { readOutstanding, readWork } from "../settlement/work-store.ts";
import { actOnce, findNetwork } from "./actions.ts";
import { readOverview } from "./overview.ts";
import * as store from "./store.ts";
import * as view from "./view.ts";

/** However many operators look. */
const OVERVIEW_KEPT_MS = 1_000;
const DETAILS_KEPT_MS = 5_000;
const CHECKS_KEPT_MS = 15_000;
/** All of the doctor's but the one that decrypts wallets: a request of the page must not reach keys. */
const CHECKED = ["database", "relayers", "chains", "url", "mail", "traces", "screening"] as const;

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  const { config, pool, prisma } = app;
  const { networks, databaseUrl } = config;
  const auth = { auth: "operator", limit: "operator" } as const;
  const tags = ["operators"];

  const overview = memoFor(OVERVIEW_KEPT_MS, () =>
    readOverview({
      now: () => databaseNow(prisma),
      networks,
      relayers: app.relayers.map(({ address }) => address),
      parts: () => app.readiness.check(),
      lanes: () => store.readLaneRows(pool),
      funds: (chainId) => app.laneFunds(chainId),
      work: (chainId) => readWork(pool, chainId),
      outstanding: (chainId) => readOutstanding(pool, chainId),
      gas: (chainId) => readGasAccounts(pool, chainId, GAS_SHARES),
      readings: () => store.readReadings(prisma),
      differences: () => countOpenDifferences(prisma),
      head: (chainId) => app.chainReads.of(chainId).heads.head?.number,
      requests: () => store.readRequests(prisma),
      failing: () => store.countFailing(pool),
      processes: () => store.readProcesses(prisma),
      screening: app.screening
        ? {
            listAgeSeconds: app.screening.listAgeSeconds ?? null,
            maxAgeSeconds: config.screening?.maxAgeSeconds ?? null,
          }
        : null,
    }),
  );
  const accounts = memoFor(DETAILS_KEPT_MS, () => store.readLowAccounts(pool));
  const merchants = memoFor(DETAILS_KEPT_MS, () => store.readMerchants(pool));
  const checks = memoFor(CHECKS_KEPT_MS, async () => {
    // Loaded when an operator wants it: no other part of the service needs it.
    const { examineWith } = await import("../../doctor/examine.ts");
    const findings = await examineWith({ ...config, databaseUrl: databaseUrl ?? "" }, CHECKED);
    return { at: (await databaseNow(prisma)).toISOString(), findings };
  });

  app.get(
    "/api/operators/overview",
    {
      config: auth,
      schema: {
        tags,
        operationId: "getOperatorOverview",
        summary: "Whether money moves, and what needs a person",
        response: { 200: OperatorOverview },
      },
    },
    () => overview(),
  );

  app.get(
    "/api/operators/differences",
    {
      config: auth,
      schema: {
        tags,
        operationId: "listDifferences",
        summary: "Differences between ledger and chain",
        response: { 200: OperatorDifferences },
      },
    },
    async () => view.viewDifferences(await store.readDifferences(prisma)),
  );

  app.get(
    "/api/operators/accounts",
    {
      config: auth,
      schema: {
        tags,
        operationId: "listLowAccounts",
        summary: "Accounts near the end of a day's budget",
        response: { 200: OperatorAccounts },
      },
    },
    async () => view.viewAccounts(await accounts()),
  );

  app.get(
    "/api/operators/merchants",
    {
      config: auth,
      schema: {
        tags,
        operationId: "listPaidMerchants",
        summary: "Third parties' settlements of the last 24 hours, by payee",
        response: { 200: OperatorMerchants },
      },
    },
    async () => view.viewMerchants(await merchants()),
  );

  app.get(
    "/api/operators/deliveries",
    {
      config: auth,
      schema: {
        tags,
        operationId: "listFailingDeliveries",
        summary: "Webhooks, e-mails and devices that fail",
        response: { 200: OperatorDeliveries },
      },
    },
    async () => view.viewDeliveries(await store.readFailingDeliveries(prisma)),
  );

  app.get(
    "/api/operators/record",
    {
      config: auth,
      schema: {
        tags,
        operationId: "listOperatorActions",
        summary: "The operators' record: who changed what",
        querystring: PageQuery,
        response: { 200: OperatorRecord },
      },
    },
    async ({ query }) => {
      const { limit } = readPage({ ...(query.limit !== undefined && { limit: query.limit }) });
      const { cursor } = query;
      if (cursor !== undefined && !/^[1-9][0-9]{0,17}$/.test(cursor)) throw invalidCursor();
      const entries = await lastOperatorActs(prisma, {
        take: limit + 1,
        ...(cursor !== undefined && { before: BigInt(cursor) }),
      });
      const items = entries.slice(0, limit).map(view.viewEntry);
      return { items, nextCursor: entries.length > limit ? (items.at(-1)?.seq ?? null) : null };
    },
  );

  app.get(
    "/api/operators/configuration",
    {
      config: auth,
      schema: {
        tags,
        operationId: "getConfiguration",
        summary: "The configuration of this process, without secrets",
        response: { 200: OperatorConfiguration },
      },
    },
    async () => ({ groups: config.shown() }),
  );

  app.post(
    "/api/operators/checks",
    {
      config: { ...auth, limit: "checks" },
      schema: {
        tags,
        operationId: "checkDeployment",
        summary: "The doctor's checks that can run inside the service; they change nothing",
        response: { 200: OperatorChecks },
      },
    },
    async () => {
      const { at, findings } = await checks();
      return {
        at,
        findings: findings.map(({ todo, ...finding }) => ({ ...finding, todo: todo ?? null })),
      };
    },
  );

  app.post(
    "/api/operators/differences/close",
    {
      config: { ...auth, errors: ["conflict"] },
      schema: {
        tags,
        operationId: "closeDifference",
        summary: "Close a difference that a person has looked at",
        description: "Recorded with the reason and the operator's wallet. It moves no money.",
        body: CloseDifferenceBody,
        response: { 200: OperatorDone },
      },
    },
    async ({ body, owner }) => {
      const { kind, key, why, confirmationId } = body;
      const network = findNetwork(networks, body.network);
      const act = { kind, key, why, confirmationId, by: { wallet: owner.address } };
      return actOnce(prisma, {
        name: "ledger.difference_healed",
        confirmationId,
        run: (tx) => closeDifferences(tx, network, act),
      });
    },
  );

  app.post(
    "/api/operators/read-again",
    {
      config: { ...auth, errors: ["conflict"] },
      schema: {
        tags,
        operationId: "readChainAgain",
        summary: "Reconciliation reads the chain again from a block",
        description: "Recorded with the reason and the operator's wallet. It moves no money.",
        body: ReadAgainBody,
        response: { 200: OperatorDone },
      },
    },
    async ({ body, owner }) => {
      const { why, confirmationId } = body;
      const network = findNetwork(networks, body.network);
      const fromBlock = BigInt(body.fromBlock);
      const act = { fromBlock, why, confirmationId, by: { wallet: owner.address } };
      return actOnce(prisma, {
        name: "ledger.read_again",
        confirmationId,
        run: (tx) => readAgain(tx, network, act),
      });
    },
  );
};

export default routes;
