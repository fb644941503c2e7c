import { pagedQuery } from "../../lib/pages.ts";
import { keys } from "../../lib/query-keys.ts";
import type { Task } from "../../lib/wire.ts";

export const tasksQuery = (agentId: string) =>
  pagedQuery<Task>(keys.tasks(agentId), `/api/agents/${agentId}/tasks`);
