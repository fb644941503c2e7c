import { Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { TxHash } from "../../components/Address.tsx";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { BlockIcon, CheckIcon } from "../../components/icons.tsx";
import { Note } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { Price, type PriceProps } from "../../components/Price.tsx";
import type { FetchAnswer } from "../../lib/wire.ts";
import styles from "./TrialAnswers.module.css";

type Verdict = NonNullable<FetchAnswer["verdict"]>;

/** Whether the agent's rules would allow the payment, rule by rule. */
export function VerdictNote({ verdict, of }: { verdict: Verdict } & PriceProps): ReactNode {
  const { choice = [] } = verdict;
  return (
    <Note color={verdict.allowed ? "green" : "yellow"}>
      <p role="status">
        {verdict.allowed ? (
          <>
            The rules allow this payment of <Price of={of} />.
          </>
        ) : (
          (verdict.detail ?? "The rules refuse this payment.")
        )}
      </p>
      {choice.length > 1 && (
        <ul aria-label="Offers" className={styles.choice}>
          {choice.map((sentence) => (
            <li key={sentence}>{sentence}</li>
          ))}
        </ul>
      )}
      <ul className={styles.rules}>
        {verdict.rules.map((rule) => (
          <li key={rule.rule} data-passed={String(rule.passed)}>
            {rule.passed === false ? (
              <BlockIcon size={14} />
            ) : rule.passed === true ? (
              <CheckIcon size={14} />
            ) : (
              <span />
            )}
            <span>
              {rule.passed === null
                ? `${rule.rule.replaceAll("_", " ")}: not checked`
                : rule.detail}
            </span>
          </li>
        ))}
      </ul>
    </Note>
  );
}

interface ReceiptProps {
  answer: FetchAnswer;
  explorer: string | undefined;
}

export function Receipt({ answer, explorer }: ReceiptProps): ReactNode {
  const { data, text = data === undefined ? undefined : JSON.stringify(data, null, 2) } = answer;
  return (
    <Stack gap="sm">
      <Note color={answer.delivered ? "green" : "yellow"}>
        <p role="status">
          {answer.paid ? (
            <>
              Paid <Money amount={answer.amountPaid} />
              {answer.delivered ? "." : ", but the seller did not deliver."}
            </>
          ) : (
            (answer.note ?? "The response was free.")
          )}{" "}
          <Money amount={answer.remaining} /> of the daily limit is left.
        </p>
        {answer.txHash !== null && <TxHash value={answer.txHash} explorerUrl={explorer} />}
      </Note>
      {text !== undefined && (
        <CodeBlock
          label={`Response (${answer.contentType ?? "no type"}${answer.truncated === true ? ", truncated" : ""})`}
          code={text.slice(0, 20_000)}
        />
      )}
    </Stack>
  );
}
