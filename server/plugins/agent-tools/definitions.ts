import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { Type } from "typebox";
import { anthropicTools, openAiTools } from "./tools.ts";

const Parameters = Type.Record(Type.String(), Type.Unknown());
const OpenAiTools = Type.Array(
  Type.Object({
    type: Type.Literal("function"),
    function: Type.Object({
      name: Type.String(),
      description: Type.String(),
      parameters: Parameters,
    }),
  }),
);
const AnthropicTools = Type.Array(
  Type.Object({ name: Type.String(), description: Type.String(), input_schema: Parameters }),
);

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "public" } as const;
  const tags = ["agents"];

  app.get(
    "/api/tools/openai",
    {
      config,
      schema: {
        tags,
        summary: "The agent's tools as OpenAI function definitions",
        response: { 200: OpenAiTools },
      },
    },
    async () => openAiTools() as never,
  );
  app.get(
    "/api/tools/anthropic",
    {
      config,
      schema: {
        tags,
        summary: "The agent's tools as Anthropic tool definitions",
        response: { 200: AnthropicTools },
      },
    },
    async () => anthropicTools(),
  );
};

export default routes;
