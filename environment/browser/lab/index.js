// A page with a notebook as JupyterLab shows it, for TestLab of kernels/: JupyterLab's notebook panel
// with its toolbar, editors, renderers, completer and tooltip, and the keys that JupyterLab assigns.
// The rest of JupyterLab (menus, file browser, settings, extensions) is missing.
//
// The address has the parameters token, path (of the notebook, on the server) and theme (light or
// dark). The title of the page is "ready" once cells can be run.
import { CodeMirrorEditorFactory, CodeMirrorMimeTypeService, EditorExtensionRegistry, EditorLanguageRegistry, EditorThemeRegistry, ybinding } from '@jupyterlab/codemirror';
import { CompletionProviderManager, ContextCompleterProvider, KernelCompleterProvider } from '@jupyterlab/completer';
import { Context } from '@jupyterlab/docregistry';
import { createMarkdownParser } from '@jupyterlab/markedparser-extension';
import { Notebook, NotebookActions, NotebookModelFactory, NotebookPanel, ToolbarItems } from '@jupyterlab/notebook';
import { RenderMimeRegistry, standardRendererFactories } from '@jupyterlab/rendermime';
import { ServerConnection, ServiceManager } from '@jupyterlab/services';
import { Tooltip } from '@jupyterlab/tooltip';
import { CommandRegistry } from '@lumino/commands';
import { Widget } from '@lumino/widgets';
import '@jupyterlab/application/style/index.js';
import '@jupyterlab/notebook/style/index.js';
import '@jupyterlab/completer/style/index.js';
import '@jupyterlab/tooltip/style/index.js';
import './page.css';

const parameters = new URLSearchParams(location.search);

function setTheme(name) {
  const link = document.createElement('link');
  link.rel = 'stylesheet';
  link.href = `${name}.css`;
  document.head.append(link);
  document.body.dataset.jpThemeLight = String(name === 'light');
  document.body.dataset.jpThemeName = name === 'light' ? 'JupyterLab Light' : 'JupyterLab Dark';
  return new Promise((resolve) => { link.onload = resolve; });
}

// openNotebook returns a panel with the notebook at a path, once its kernel has been started.
async function openNotebook(manager, path) {
  const languages = new EditorLanguageRegistry();
  EditorLanguageRegistry.getDefaultLanguages().forEach((language) => languages.addLanguage(language));
  const themes = new EditorThemeRegistry();
  EditorThemeRegistry.getDefaultThemes().forEach((theme) => themes.addTheme(theme));
  const extensions = new EditorExtensionRegistry();
  EditorExtensionRegistry.getDefaultExtensions({ themes }).forEach((extension) => extensions.addExtension(extension));
  extensions.addExtension({ // without which the notebook would not hear of what is typed
    name: 'shared-model',
    factory: ({ model: { sharedModel } }) => EditorExtensionRegistry.createImmutableExtension(ybinding({ ytext: sharedModel.ysource, undoManager: sharedModel.undoManager })),
  });
  const editors = new CodeMirrorEditorFactory({ extensions, languages });

  const context = new Context({ manager, factory: new NotebookModelFactory({}), path, kernelPreference: { shouldStart: true } });
  const rendermime = new RenderMimeRegistry({ initialFactories: standardRendererFactories, markdownParser: createMarkdownParser(languages) });
  const content = new Notebook({
    rendermime,
    contentFactory: new NotebookPanel.ContentFactory({ editorFactory: editors.newInlineEditor }),
    mimeTypeService: new CodeMirrorMimeTypeService(languages),
  });
  const panel = new NotebookPanel({ context, content });
  panel.id = 'panel';
  panel.addClass('jp-ThemedContainer');
  await context.initialize(false);
  await context.ready;
  await context.sessionContext.ready;
  return panel;
}

// addCompletion completes names in the active cell.
async function addCompletion(panel) {
  const completions = new CompletionProviderManager();
  completions.registerProvider(new KernelCompleterProvider());
  completions.registerProvider(new ContextCompleterProvider());
  completions.setTimeout(1000);
  const update = async () => {
    const cell = panel.content.activeCell;
    if (cell) await cell.ready;
    await completions.updateCompleter({ widget: panel, editor: cell ? cell.editor : null, session: panel.sessionContext.session, sanitizer: panel.content.rendermime.sanitizer });
  };
  panel.content.activeCellChanged.connect(update);
  panel.sessionContext.sessionChanged.connect(update);
  await update();
  return completions;
}

// showTooltip shows what the kernel knows about the name at the cursor.
async function showTooltip(panel) {
  const editor = panel.content.activeCell.editor;
  const reply = await panel.sessionContext.session.kernel.requestInspect({
    code: editor.model.sharedModel.getSource(),
    cursor_pos: editor.getOffsetAt(editor.getCursorPosition()),
    detail_level: 0,
  });
  if (reply.content.status !== 'ok' || !reply.content.found) return;
  Widget.attach(new Tooltip({ anchor: panel.content, bundle: reply.content.data, editor, rendermime: panel.content.rendermime }), document.body);
}

// addKeys assigns the keys of JupyterLab.
function addKeys(panel, completions) {
  const commands = new CommandRegistry();
  const edit = '.jp-Notebook.jp-mod-editMode';
  const add = (id, keys, selector, execute) => {
    commands.addCommand(id, { execute });
    commands.addKeyBinding({ command: id, keys: [keys], selector });
  };
  add('run', 'Ctrl Enter', '.jp-Notebook', () => NotebookActions.run(panel.content, panel.sessionContext));
  add('complete', 'Tab', `${edit} .jp-mod-completer-enabled:not(.jp-mod-at-line-beginning)`, () => completions.invoke(panel.id));
  add('select', 'Enter', `.jp-Notebook .jp-mod-completer-active`, () => completions.select(panel.id));
  add('tooltip', 'Shift Tab', `${edit} .jp-InputArea-editor:not(.jp-mod-has-primary-selection):not(.jp-mod-in-leading-whitespace):not(.jp-mod-completer-active)`, () => showTooltip(panel));
  document.addEventListener('keydown', (event) => commands.processKeydownEvent(event), true);
}

async function main() {
  await setTheme(parameters.get('theme'));
  const manager = new ServiceManager({
    serverSettings: ServerConnection.makeSettings({
      baseUrl: `${location.origin}/`,
      token: parameters.get('token'),
      appendToken: true,
    }),
  });
  await manager.ready;
  const panel = await openNotebook(manager, parameters.get('path'));
  ToolbarItems.getDefaultItems(panel).forEach(({ name, widget }) => panel.toolbar.addItem(name, widget));
  Widget.attach(panel, document.body);
  addKeys(panel, await addCompletion(panel));
  document.title = 'ready';
}

main();
