import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { llmsText, skillMarkdown } from "./skill.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "public" } as const;
  const { network } = app.chains.default;
  const facts = {
    baseUrl: app.config.publicUrl,
    networkId: network.id,
    networkName: network.name,
    demoPath: `/api/${network.slug}-stats`,
  };
  const skill = skillMarkdown(facts);
  const llms = llmsText(facts);

  app.get(
    "/skill.md",
    { config, schema: { tags: ["meta"], summary: "Instructions for agents (Markdown)" } },
    async (_request, reply) => reply.type("text/markdown; charset=utf-8").send(skill),
  );
  app.get(
    "/llms.txt",
    { config, schema: { tags: ["meta"], summary: "What is here, for language models" } },
    async (_request, reply) => reply.type("text/plain; charset=utf-8").send(llms),
  );
};

export default routes;
