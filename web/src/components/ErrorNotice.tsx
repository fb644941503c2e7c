import { Alert, Button, Text } from "@mantine/core";
import { lazy, type ReactNode, Suspense } from "react";
import { ApiError } from "../lib/api.ts";
import { NotSigned } from "../lib/orders/signing.ts";
import { loadPart } from "../lib/reachable.ts";
import { AlertIcon } from "./icons.tsx";
import { Note } from "./Layout.tsx";

// Only teams need it, and every page has this file.
const WaitingNotice = lazy(() => loadPart(() => import("./WaitingNotice.tsx")));

interface ErrorNoticeProps {
  error: unknown;
  /** The attempted action, as the start of a sentence: "Agents could not be loaded". */
  title?: string;
  onRetry?: () => void;
}

const sentence = (error: unknown): string =>
  error instanceof Error && error.message !== "" ? error.message : "Something went wrong.";

/** The inline form of every failure: the error, the next step, and the request id. */
export function ErrorNotice({ error, title, onRetry }: ErrorNoticeProps): ReactNode {
  // Declining a signature is the user's own decision, so it is not shown as an error.
  if (error instanceof NotSigned)
    return (
      <Note>
        <p role="status">{error.message}</p>
      </Note>
    );
  const problem = error instanceof ApiError ? error : undefined;
  if (problem?.isWaiting === true)
    return (
      <Suspense fallback={null}>
        <WaitingNotice error={problem} />
      </Suspense>
    );
  const isLost = problem?.mayBeDone === true;
  const detail = sentence(error);
  const fields = fieldErrors(problem);
  return (
    <Alert
      color="red"
      icon={<AlertIcon />}
      title={isLost ? "It is not known whether this was done" : title}
    >
      <p>{detail}</p>
      {isLost && (
        <p>The answer may have been lost: look whether it was done before you repeat it.</p>
      )}
      {fields.length > 0 && (
        <ul>
          {fields.map((field) => (
            <li key={`${field.path}${field.message}`}>
              {field.path.replace(/^\//, "")}: {field.message}
            </li>
          ))}
        </ul>
      )}
      {problem?.suggestion !== undefined && !detail.includes(problem.suggestion) && (
        <p>{problem.suggestion}</p>
      )}
      {problem?.requestId !== undefined && (
        <Text c="dimmed" size="xs">
          Request <code>{problem.requestId}</code>
        </Text>
      )}
      {onRetry && (
        <Button
          size="xs"
          mt="xs"
          onClick={() => {
            onRetry();
          }}
        >
          Try again
        </Button>
      )}
    </Alert>
  );
}

function fieldErrors(problem: ApiError | undefined): { path: string; message: string }[] {
  const errors = problem?.problem.errors;
  if (!Array.isArray(errors)) return [];
  return errors.flatMap((entry: unknown) => {
    const { path, message } = (entry ?? {}) as { path?: unknown; message?: unknown };
    return typeof path === "string" && typeof message === "string" ? [{ path, message }] : [];
  });
}
