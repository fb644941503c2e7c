import type { ReactNode } from "react";
import { Link } from "react-router";
import { type Template, TEMPLATES } from "./templates.ts";
import styles from "./Templates.module.css";

interface TemplateChoiceProps {
  /** What the form shows: a template, nothing, or values of its own (`null`). */
  shown: Template | "empty" | null;
  onChoose: (template: Template | undefined) => void;
}

/** Each press fills the form. */
export const TemplateChoice = ({ shown, onChoose }: TemplateChoiceProps): ReactNode => (
  <ul className={styles.list} aria-label="Templates">
    {TEMPLATES.map((template) => (
      <li key={template.id}>
        <button
          type="button"
          className={styles.card}
          aria-pressed={shown === template}
          onClick={() => {
            onChoose(template);
          }}
        >
          <Words title={template.title} lead={template.lead} />
        </button>
      </li>
    ))}
    <li>
      <button
        type="button"
        className={styles.card}
        aria-pressed={shown === "empty"}
        onClick={() => {
          onChoose(undefined);
        }}
      >
        <Words title="Start empty" lead="You set every rule yourself." />
      </button>
    </li>
  </ul>
);

/** Leads to the form, already filled. */
export const TemplateLinks = (): ReactNode => (
  <ul className={styles.list} aria-label="Start with a template">
    {TEMPLATES.map(({ id, title, lead }) => (
      <li key={id}>
        <Link className={styles.card} to={`/agents/new?template=${id}`}>
          <Words title={title} lead={lead} />
        </Link>
      </li>
    ))}
  </ul>
);

const Words = ({ title, lead }: { title: string; lead: string }): ReactNode => (
  <>
    <strong>{title}</strong>
    <span>{lead}</span>
  </>
);
