/** Stops everything of an owner with one request, and resumes it with the owner's signature. */
import fp from "fastify-plugin";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { ResumeAnswer, ResumeBody, resumeRefusals, StopAnswer } from "../../schemas/owners.ts";
import { ownerCall } from "../agents/change.ts";
import { acceptEmptyJson } from "../http/index.ts";
import { viewStopped } from "../owners/store.ts";
import { resumeAll, stopAll } from "./stop.ts";

export default fp(
  async (app) => {
    await app.register(routes);
  },
  { name: "stop" },
);

const routes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  const tags = ["owners: stop"];
  // An owner's orders that concern no agent are signed for the first network.
  const chainId = app.config.networks[0].chainId;
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));

  app.post(
    "/api/owner/stop",
    {
      config: { auth: "owner", second: true },
      schema: {
        tags,
        operationId: "stopEverything",
        summary:
          "Pause all agents at once, and refuse new agents, keys, connections and approvals. Withdrawals work. Stopping twice is no error",
        response: { 200: StopAnswer },
      },
    },
    async (request) => {
      const stopped = viewStopped(await stopAll(ownerCall(request)));
      return { success: true as const, stopped };
    },
  );

  app.post(
    "/api/owner/resume",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "resumeEverything",
        summary:
          "End the stop, with the owner's signature: the agents that it paused are active again",
        body: ResumeBody,
        response: { 200: ResumeAnswer, ...resumeRefusals },
      },
    },
    async (request) => {
      const { authorization } = request.body;
      const agents = await resumeAll(ownerCall(request), chainId, authorization);
      return { success: true as const, stopped: null, agents };
    },
  );
};
